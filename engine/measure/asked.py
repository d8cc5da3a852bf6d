"""What is asked in words: the probe questions and the prompts, of the full model and of a build.

The full model hears every question, a build only those that the full model gets right: the others
could not count against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config import EngineConfig, RunConfig
from engine.measure import answers, probes
from engine.measure.full_model import Spoken, asked_digest
from engine.measure.probes import Question
from engine.measure.reporter import Reporter
from engine.measure.shelf import Shelf
from engine.model.llama import Llama
from engine.quality_report import Answer, Probes

Prompts = list[list[int]]

NOTHING = Spoken(asked="", marks=(), answers=())
"""Of a model that cannot be asked: its template refuses questions, or its context is too short."""


def full_spoken(shelf: Shelf, threads: int, desk: Reporter) -> Spoken:
    """What the float32 model says to everything.

    Raises:
        NonFiniteLogits: a score is no number.
        Aborted: the player stopped it.
    """
    asked = probes.questions()
    name = asked_digest(asked)
    framed = _framed(shelf, asked)
    if framed is None:
        return Spoken(name, NOTHING.marks, NOTHING.answers)
    questions, prompts = framed
    plain = EngineConfig(run=RunConfig("float32", threads))
    speaker = _Speaker(shelf, shelf.llama("float32"), plain, desk)
    marks = speaker.marks(asked, questions)
    return Spoken(name, marks, tuple(speaker.words(prompts)))


def build_spoken(
    shelf: Shelf, config: EngineConfig, model: Llama, full: Spoken, desk: Reporter
) -> tuple[Probes | None, tuple[Answer, ...]]:
    """How many of the questions the build `config` of `model` still gets right, and its words
    beside the full model's; (None, ()) of a model that cannot be asked. Raises as `full_spoken`.
    """
    known = tuple(
        question for question, mark in zip(probes.questions(), full.marks, strict=False) if mark
    )
    framed = _framed(shelf, known) if full.marks else None
    if framed is None:
        return None, ()
    questions, prompts = framed
    speaker = _Speaker(shelf, model, config, desk)
    marks = speaker.marks(known, questions)
    words = speaker.words(prompts)
    side_by_side = answers.side_by_side(shelf.tokenizer, full.answers, words)
    return probes.tally(full.marks, marks), side_by_side


@dataclass(frozen=True)
class _Speaker:
    """A build that is asked, and where it is told how far it has come."""

    shelf: Shelf
    model: Llama
    config: EngineConfig
    desk: Reporter

    def marks(self, asked: Sequence[Question], prompts: Prompts) -> tuple[bool, ...]:
        """Of each question whether it is answered; no reply goes on once it is."""
        tokenizer = self.shelf.tokenizer
        replies = self._say(
            prompts,
            probes.TOKENS,
            "probes",
            lambda index, reply: probes.settled(tokenizer, asked[index], reply),
        )
        return probes.marks(tokenizer, asked, replies)

    def words(self, prompts: Prompts) -> list[tuple[int, ...]]:
        return self._say(prompts, answers.TOKENS, "answers", lambda *_: False)

    def _say(
        self, prompts: Prompts, tokens: int, phase: str, enough: answers.Enough
    ) -> list[tuple[int, ...]]:
        self.desk.progress(phase, 0, max(len(prompts), 1))

        def said(finished: int) -> None:
            self.desk.progress(phase, finished, len(prompts))

        ends = self.shelf.tokenizer.eos_ids
        return answers.greedy(self.model, self.config, prompts, tokens, ends, said, enough)


def _framed(shelf: Shelf, asked: tuple[Question, ...]) -> tuple[Prompts, Prompts] | None:
    """Questions and prompts as the model's template frames them; None where that refuses them, or
    one with its answer passes the model's context."""
    try:
        questions = probes.framed(shelf.tokenizer, asked)
        prompts = answers.framed_prompts(shelf.tokenizer)
    except ValueError:  # `ModelError` is one: the template's own refusal
        return None
    longest = max(
        max(map(len, questions), default=0) + probes.TOKENS, max(map(len, prompts)) + answers.TOKENS
    )
    return (questions, prompts) if longest <= shelf.config.context else None
