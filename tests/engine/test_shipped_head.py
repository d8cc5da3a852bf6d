"""The draft that ships with the default model: it is there, has its card, and knows its model.

What it is worth on questions it never saw is in its card (`benchmarks/draft_card.py`); here a few
of them are answered, so that a head that was mixed up, or trained for something else, is seen.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.config import DraftConfig, EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.drafters import cost_ratio
from engine.measure.shelf import Shelf
from engine.model.loader import LoadedModel, load_model
from engine.model.store import find_model
from engine.run.engine import Engine, SamplingParams
from engine.speculate.head_file import HEADS, read_head, shipped_head

pytestmark = pytest.mark.model

QUESTIONS = (
    "Tell me about the seasons of the year.",
    "Explain how rain forms.",
    "Write a short poem about a river.",
    "List three uses of a knife in the kitchen.",
)
WORDS = 32
MEGABYTES = 8
"""A few MiB, as package data may be."""


@pytest.fixture(scope="module")
def loaded(default_model_path: Path) -> LoadedModel:
    return load_model(find_model(str(default_model_path)))


def test_it_is_small_and_has_a_card(loaded: LoadedModel) -> None:
    path = shipped_head(loaded.digest)
    assert path is not None and path.stat().st_size < MEGABYTES << 20
    shape, tensors, about = read_head(path, loaded.digest)
    card = path.with_suffix(".md").read_text(encoding="utf-8")
    assert loaded.digest in card
    assert f"head of {shape.inner}" in card and f"{len(tensors['words']):,} usual words" in card
    assert f"{int(about['tokens']):,} tokens" in card and f"{int(about['trained']):,} steps" in card
    assert {one.stem for one in HEADS.glob("*.md")} == {
        one.stem for one in HEADS.glob("*.safetensors")
    }


def test_its_card_says_that_it_beats_a_look_up_and_costs_little(loaded: LoadedModel) -> None:
    """A tenth of a step by bytes, under a quarter as it was measured."""
    path = shipped_head(loaded.digest)
    assert path is not None
    card = path.with_suffix(".md").read_text(encoding="utf-8")
    rates = dict(re.findall(r"\| (\w+ \d) \| all [^|]*\| (0\.\d+) ", card))
    assert float(rates["trained 2"]) > float(rates["ngram 2"])
    assert float(rates["trained 4"]) > float(rates["ngram 4"])
    (cost,) = re.findall(r"takes (0\.\d+) of a step", card)
    assert float(cost) < 0.25
    shelf = Shelf(loaded)
    config = EngineConfig(draft=DraftConfig("trained"))
    assert cost_ratio(config, loaded.config, shelf.drafters) < 0.1


def test_it_foretells_what_the_model_says(loaded: LoadedModel) -> None:
    shelf = Shelf(loaded)
    config = EngineConfig(
        workload=WorkloadConfig(64, WORDS),
        schedule=ScheduleConfig(len(QUESTIONS)),
        run=RunConfig("float32", 1),
        draft=DraftConfig("trained", 2),
    )
    model = shelf.llama("float32")
    engine = Engine(model, config, draft=shelf.drafting(config, model))
    params = SamplingParams(max_tokens=WORDS, ignore_eos=True)
    for text in QUESTIONS:
        engine.add_request(loaded.tokenizer.chat([("user", text)]), params)
    while engine.has_work:
        engine.step()
    counted = engine.draft_counters
    assert counted.bare <= len(QUESTIONS)  # a last step may have no room for one
    assert counted.accepted > 0.2 * counted.drafted  # by chance none of 8,192 words would
