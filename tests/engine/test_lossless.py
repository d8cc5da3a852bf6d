"""Lossless on the default model: 32 questions, 64 words each, with a draft and without.

A near-tie is told apart from a fault by its margin: where two answers part, both words must lie so
close in the scores of the whole text that only the order of a sum can say which is larger.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import DraftConfig, EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.measure.probes import questions
from engine.measure.shelf import Shelf
from engine.model.loader import LoadedModel, load_model
from engine.model.store import find_model
from engine.run.engine import Engine, SamplingParams
from engine.run.scoring import logits

pytestmark = pytest.mark.model

PROMPTS, WORDS, BATCH = 32, 64, 32
NEAR_TIE = 1e-4
"""Of scores that span some thirty, in float32."""

PLAIN = EngineConfig(
    workload=WorkloadConfig(64, WORDS),
    schedule=ScheduleConfig(BATCH),
    run=RunConfig("float32", 1),
)


@pytest.fixture(scope="module")
def loaded(default_model_path: Path) -> LoadedModel:
    return load_model(find_model(str(default_model_path)))


@pytest.fixture(scope="module")
def shelf(loaded: LoadedModel) -> Shelf:
    return Shelf(loaded)


@pytest.fixture(scope="module")
def prompts(loaded: LoadedModel) -> list[list[int]]:
    asked = questions()[:: len(questions()) // PROMPTS][:PROMPTS]
    return [loaded.tokenizer.chat([("user", question.text)]) for question in asked]


def said(
    shelf: Shelf, draft: DraftConfig, prompts: list[list[int]]
) -> tuple[list[list[int]], Engine]:
    config = EngineConfig(PLAIN.workload, PLAIN.schedule, PLAIN.run, draft=draft)
    model = shelf.llama("float32")
    engine = Engine(model, config, draft=shelf.drafting(config, model))
    params = SamplingParams(max_tokens=WORDS, ignore_eos=True)
    answers: dict[int, list[int]] = {engine.add_request(one, params): [] for one in prompts}
    while engine.has_work:
        for request, tokens in engine.step().tokens.items():
            answers[request].extend(tokens)
    return list(answers.values()), engine


@pytest.fixture(scope="module")
def plain(shelf: Shelf, prompts: list[list[int]]) -> list[list[int]]:
    return said(shelf, DraftConfig(), prompts)[0]


def test_the_words_are_those_without_a_draft(
    shelf: Shelf, prompts: list[list[int]], plain: list[list[int]]
) -> None:
    """With the draft that ships; every other kind on a tiny model, in `run/test_drafts.py`."""
    drafted, engine = said(shelf, DraftConfig("trained", 2), prompts)
    counted = engine.draft_counters
    assert counted.accepted > 0 and counted.drafted > counted.accepted
    assert [len(one) for one in drafted] == [WORDS] * PROMPTS
    model = shelf.llama("float32")
    for prompt, one, other in zip(prompts, plain, drafted, strict=True):
        if one == other:
            continue
        place = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
        row = logits(model, [*prompt, *one[:place]])[-1]
        margin = abs(float(row[one[place]] - row[other[place]]))
        assert margin <= NEAR_TIE, f"word {place}: {margin:.3g} apart"
