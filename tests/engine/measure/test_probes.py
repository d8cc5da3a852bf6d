"""Probe questions: what counts as an answer, what a file of questions must be, who knows what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig, RunConfig
from engine.measure import probes
from engine.measure.answers import greedy
from engine.measure.probes import (
    Question,
    framed,
    marks,
    questions,
    questions_digest,
    tally,
    words_of,
)
from engine.model.llama import Llama
from engine.model.loader import load_model
from engine.model.store import ModelSource


def question(*accepted: str) -> Question:
    return Question("What is it?", "It is", accepted)


@pytest.mark.parametrize(
    ("accepted", "reply"),
    [
        ("Paris", " Paris."),
        ("Paris", " the city of PARIS, in France"),
        ("New York", " New York City"),
        ("new york", " “New-York”"),
        ("H2O", " H2O. This"),
        ("24", " 24 hours"),
        ("3.5", " 3.5 or so"),
        ("straße", " STRASSE"),
        ("A", " a, b, c"),
    ],
)
def test_an_answer_counts_where_it_stands_as_whole_words(accepted: str, reply: str) -> None:
    assert question(accepted).answered_by(reply)
    assert question("nothing", accepted).answered_by(reply)


@pytest.mark.parametrize(
    ("accepted", "reply"),
    [
        ("Paris", " Parisian"),
        ("Paris", " comparison"),
        ("Paris", ""),
        ("New York", " York, New"),
        ("New York", " new and york"),
        ("7", " 7,982"),
        ("7", " 7.5"),
        ("7", " 17"),
        ("cat", " cats"),
        ("cat", " c at"),
        ("A", " an apple"),
        ("O", " H2O"),
    ],
)
def test_an_answer_inside_other_words_does_not(accepted: str, reply: str) -> None:
    assert not question(accepted).answered_by(reply)


@pytest.mark.parametrize(
    ("accepted", "reply", "is_settled"),
    [
        ("Paris", " Paris", False),
        ("Paris", " Paris.", True),
        ("Paris", " Paris,", True),
        ("Paris", " Paris and", True),
        ("Paris", " Paris\N{REPLACEMENT CHARACTER}", False),
        ("Paris", " Paris.\N{REPLACEMENT CHARACTER}", True),
        ("New York", " New York", False),
        ("7", " 7", False),
        ("7", " 7.", False),
        ("7", " 7,9", False),
        ("7", " 7. ", True),
        ("7", " 7 or 8", True),
        ("7", " a7.", False),
        ("7", " 8 or 9.", False),
    ],
)
def test_an_answer_is_settled_once_nothing_can_follow_that_undoes_it(
    accepted: str, reply: str, is_settled: bool
) -> None:
    assert question(accepted).settled_by(reply) is is_settled


@given(st.text("a7.,é \n-"), st.text("a7.,é \n-"))
def test_what_is_settled_stays_answered(said: str, following: str) -> None:
    asked = question("a", "7", "a a", "7.7", "é a")
    if asked.settled_by(said):
        assert asked.answered_by(said) and asked.answered_by(said + following)


def test_words_leave_case_and_punctuation_behind() -> None:
    assert words_of('"The Red-fox," she said: 1,000.5!') == ("the", "red", "fox", "she", "said",
                                                            "1,000.5")  # fmt: skip


def test_the_shipped_questions_are_many_and_each_is_asked_once() -> None:
    found = questions()
    assert len(found) >= 110
    assert len({(one.text, one.begin) for one in found}) == len(found)
    assert all(0 < len(one.begin.split()) <= 9 for one in found)
    assert all(len(answer) <= 20 for one in found for answer in one.accepted)
    capital = next(one for one in found if one.text == "What is the capital of France?")
    assert (capital.begin, capital.accepted) == ("The capital of France is", ("Paris",))
    assert "{}" not in "".join(one.text + one.begin for one in found)


def test_the_digest_follows_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = question("yes"), question("no")
    assert questions_digest([one]) == questions_digest([question("yes")])
    assert len({questions_digest(asked) for asked in ([one], [other], [one, other], [])}) == 4
    before = questions_digest([one])
    monkeypatch.setattr(probes, "TOKENS", 9)
    assert questions_digest([one]) != before


def read(path: Path, text: str) -> tuple[Question, ...]:
    path.write_text(text, encoding="utf-8")
    questions.cache_clear()
    try:
        return questions(path)
    finally:
        questions.cache_clear()


def test_a_file_is_spelled_out_in_its_order(tmp_path: Path) -> None:
    text = """
    questions = [["Who?", "It was", "I", "me"]]
    [[pattern]]
    ask = "What does the {} say?"
    begin = "{} says"
    rows = [["cow", "moo"], ["cat", "meow", "miaow"]]
    """
    assert read(tmp_path / "some.toml", text) == (
        Question("Who?", "It was", ("I", "me")),
        Question("What does the cow say?", "Cow says", ("moo",)),
        Question("What does the cat say?", "Cat says", ("meow", "miaow")),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no question"),
        ("questions = [", "some.toml: "),
        ("questions = [1]", "Expected `array`"),
        ("questoins = []", "unknown field"),
        ('questions = [["Who?", "It was"]]', "needs a question, a beginning and an answer"),
        ('questions = [["?", "It was", "me"]]', "has no words"),
        ('questions = [["Who?", " ", "me"]]', "has no words"),
        ('questions = [["Who?", "It was ", "me"]]', "splits a word"),
        ('questions = [["Who?", "It was", "!"]]', "needs answers in words"),
        ('questions = [["Who?", "It was me", "you", "me"]]', "answered by its own beginning"),
        ('questions = [["Who?", "It is", "me"], ["Who?", "It is", "I"]]', "is asked twice"),
        ('[[pattern]]\nask = "{}?"\nbegin = "{}"\nrows = [["a"]]', "needs a subject and an answer"),
    ],
)
def test_a_file_that_cannot_be_asked_says_why(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "some.toml", text)


def test_questions_are_framed_as_chat_and_begun(byte_tokenizer: Any) -> None:
    found = framed(byte_tokenizer, [question("x")])
    assert [bytes(ids).decode() for ids in found] == ["What is it?It is"]


def test_replies_are_marked_and_tallied(byte_tokenizer: Any) -> None:
    asked = (question("Rome"), question("Oslo"), question("Lima"))
    replies = [list(text.encode()) for text in (" Rome.", " Romeo", " lima")]
    full = marks(byte_tokenizer, asked, replies)
    assert full == (True, False, True)
    found = tally(full, (False, True))
    assert (found.asked, found.known, found.right) == (3, 2, 1)


@pytest.mark.model
def test_the_default_model_knows_enough_for_the_figure_to_mean_something(
    default_model_path: Path,
) -> None:
    """Every sixth question: asking all takes a minute of a busy core."""
    torch.set_num_threads(2)
    loaded = load_model(ModelSource("gguf", default_model_path, "default"))
    model = Llama(loaded.config, loaded.tensors, "bfloat16")
    asked = questions()[::6]
    config = EngineConfig(run=RunConfig("bfloat16", 2))
    prompts = framed(loaded.tokenizer, asked)
    replies = greedy(model, config, prompts, probes.TOKENS, loaded.tokenizer.eos_ids)
    assert sum(marks(loaded.tokenizer, asked, replies)) >= 0.8 * len(asked)
