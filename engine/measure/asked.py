"""What is asked in words: the probe questions and the prompts, of the full model and of a build.

The full model hears every question, a build only those that the full model gets right: the others
could not count against it.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.config import EngineConfig, RunConfig
from engine.measure import answers, probes
from engine.measure.full_model import Spoken, asked_digest
from engine.measure.probes import Question
from engine.measure.reporter import Reporter
from engine.measure.shelf import Shelf
from engine.model.llama import Llama
from engine.quality_report import Answer, Probes

Prompts = list[list[int]]
Say = Callable[[Prompts, int, str], list[tuple[int, ...]]]
"""(prompts in tokens, tokens of an answer, phase) -> answers in tokens."""

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
    say = _speaker(
        shelf, shelf.llama("float32"), EngineConfig(run=RunConfig("float32", threads)), desk
    )
    replies = say(questions, probes.TOKENS, "probes")
    marks = probes.marks(shelf.tokenizer, asked, replies)
    return Spoken(name, marks, tuple(say(prompts, answers.TOKENS, "answers")))


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
    say = _speaker(shelf, model, config, desk)
    replies = say(questions, probes.TOKENS, "probes")
    marks = probes.marks(shelf.tokenizer, known, replies)
    words = say(prompts, answers.TOKENS, "answers")
    side_by_side = answers.side_by_side(shelf.tokenizer, full.answers, words)
    return probes.tally(full.marks, marks), side_by_side


def _speaker(shelf: Shelf, model: Llama, config: EngineConfig, desk: Reporter) -> Say:
    def say(prompts: Prompts, tokens: int, phase: str) -> list[tuple[int, ...]]:
        desk.progress(phase, 0, max(len(prompts), 1))

        def said(finished: int) -> None:
            desk.progress(phase, finished, len(prompts))

        return answers.greedy(model, config, prompts, tokens, shelf.tokenizer.eos_ids, said)

    return say


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
