"""Short questions with short answers: does the build still know what the full model knows?

A question is asked through the chat template and the first words of the reply are given, so that a
small model names the answer instead of talking around it. A question counts only where the full
model gets it right: what it never knew, no width can cost it.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from engine.measure.shelf import ShelfTokenizer
from engine.quality_report import Probes

QUESTIONS = Path(__file__).parent / "corpus" / "probes.toml"

TOKENS = 5
"""Of a reply, after the words it is given."""

_WORD = re.compile(r"\d+(?:[.,]\d+)+|[^\W_]+")
"""7,982 is one word: it does not say 7."""

_OPEN = re.compile(r"(?:[^\W_]|(?<=\d)[.,])+$")
"""What may grow into another word: 7 into 70 or 7th, 7. into 7.5, car into cart; not car with a
full stop."""

HALF_A_CHARACTER = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer shows for bytes that lack the rest of their character."""


@dataclass(frozen=True)
class Question:
    """`begin` are the first words of the reply; each of the `accepted` answers is one or more
    words."""

    text: str
    begin: str
    accepted: tuple[str, ...]

    def answered_by(self, reply: str) -> bool:
        """Whether an accepted answer stands in `reply` as whole words, side by side and in order;
        case and punctuation do not count."""
        return self._among(words_of(reply))

    def settled_by(self, reply: str) -> bool:
        """Whether `reply` answers it whatever else is said: a last word that may still grow into
        another one does not count."""
        return self._among(words_of(_OPEN.sub("", reply.rstrip(HALF_A_CHARACTER))))

    def _among(self, words: tuple[str, ...]) -> bool:
        return any(_stands_in(words_of(answer), words) for answer in self.accepted)


def words_of(text: str) -> tuple[str, ...]:
    """The words of a text without case: "The Red-fox." is the, red, fox."""
    return tuple(_WORD.findall(text.casefold()))


class _Pattern(msgspec.Struct, forbid_unknown_fields=True):
    ask: str
    begin: str
    rows: list[list[str]]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    questions: list[list[str]] = []
    pattern: list[_Pattern] = []


@lru_cache(maxsize=1)
def questions(path: Path = QUESTIONS) -> tuple[Question, ...]:
    """All questions in the file's order; the file says itself how it is written.

    Raises:
        ValueError: another form, no question, one without words or without an answer in words, one
            whose beginning already answers it, or one asked twice.
    """
    try:
        file = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"{path.name}: {error}") from None
    found = tuple(_spelled_out(file, path.name))
    if not found:
        raise ValueError(f"{path.name} holds no question")
    seen: set[tuple[str, str]] = set()
    for question in found:
        fault = _fault(question)
        if (question.text, question.begin) in seen:
            fault = "is asked twice"
        if fault:
            raise ValueError(f"{path.name}: {question.text!r}, {question.begin!r} {fault}")
        seen.add((question.text, question.begin))
    return found


def questions_digest(asked: Sequence[Question]) -> str:
    """SHA-256 of the questions and of how long a reply may be."""
    told = [TOKENS, [(question.text, question.begin, question.accepted) for question in asked]]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()


def framed(tokenizer: ShelfTokenizer, asked: Sequence[Question]) -> list[list[int]]:
    """The questions as the chat template frames them, each with the beginning of its reply.

    Raises ValueError where the model's template refuses them.
    """
    return [
        tokenizer.chat([("user", question.text)]) + tokenizer.encode(question.begin)
        for question in asked
    ]


def marks(
    tokenizer: ShelfTokenizer, asked: Sequence[Question], replies: Sequence[Sequence[int]]
) -> tuple[bool, ...]:
    """Which of the questions the replies (tokens, one list a question) get right."""
    return tuple(
        question.answered_by(tokenizer.decode(list(reply)))
        for question, reply in zip(asked, replies, strict=True)
    )


def settled(tokenizer: ShelfTokenizer, question: Question, reply: Sequence[int]) -> bool:
    """Whether a reply (tokens) is right whatever follows: the rest need not be asked for."""
    return question.settled_by(tokenizer.decode(list(reply)))


def tally(full: Sequence[bool], build: Sequence[bool]) -> Probes:
    """`full` are the full model's marks for every question, `build` the build's for those that the
    full model got right."""
    known = sum(full)
    assert len(build) == known
    return Probes(asked=len(full), known=known, right=sum(build))


def _spelled_out(file: _File, name: str) -> Iterator[Question]:
    for row in file.questions:
        if len(row) < 3:
            raise ValueError(f"{name}: {row} needs a question, a beginning and an answer")
        yield Question(row[0], row[1], tuple(row[2:]))
    for pattern in file.pattern:
        for row in pattern.rows:
            if len(row) < 2:
                raise ValueError(f"{name}: {row} needs a subject and an answer")
            begin = pattern.begin.replace("{}", row[0])
            yield Question(
                pattern.ask.replace("{}", row[0]), begin[:1].upper() + begin[1:], tuple(row[1:])
            )


def _fault(question: Question) -> str:
    """What is wrong with a question, "" where nothing is."""
    if not words_of(question.text) or not question.begin.strip():
        return "has no words"
    if question.begin != question.begin.strip():
        return "begins or ends with a space, which splits a word from its token"
    if not question.accepted or not all(words_of(answer) for answer in question.accepted):
        return "needs answers in words"
    if question.answered_by(question.begin):
        return "is answered by its own beginning"
    return ""


def _stands_in(answer: tuple[str, ...], words: tuple[str, ...]) -> bool:
    width = len(answer)
    return any(words[start : start + width] == answer for start in range(len(words) - width + 1))
