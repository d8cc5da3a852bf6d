"""What lies ready between two trials: made once, quantised once, the judge never kept."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rounded_weights import meant_tensors, rounded

from engine.config import WeightsConfig
from engine.measure import shelf as shelf_module
from engine.measure.quantising import UNWATCHED, Watch
from engine.measure.shelf import Shelf
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.quant.weights import QuantisedWeights
from engine.quantised import LayerError
from engine.recipe import Recipe, recipe_of
from engine.run.scoring import logits

Configs = Callable[..., ModelConfig]
Tensors = Callable[[ModelConfig], dict[str, torch.Tensor]]

TEXT = [(11 * place + 5) % 256 for place in range(24)]


@dataclass
class Bench:
    """A shelf whose weights are rounded to nearest, and what it was asked to quantise."""

    shelf: Shelf
    config: ModelConfig
    tensors: dict[str, torch.Tensor]
    asked: list[tuple[int, str]] = field(default_factory=list)

    def recipe(self, bits: int) -> Recipe:
        return recipe_of(WeightsConfig(bits), self.config)


@pytest.fixture
def bench(
    tiny_config: Configs,
    tiny_tensors: Tensors,
    byte_tokenizer: Any,
) -> Bench:
    config = tiny_config(tied_head=False, qkv_bias=True)
    tensors = tiny_tensors(config)
    loaded = SimpleNamespace(
        config=config, tensors=tensors, tokenizer=byte_tokenizer, digest="f" * 64, name="tiny"
    )

    def quantise(
        loaded: Any, recipe: Recipe, precision: str, pressed: Any, check: Any
    ) -> QuantisedWeights:
        scheme = recipe.layers[0].mlp
        assert scheme is not None
        made.asked.append((scheme.bits, precision))
        check()
        pressed(LayerError(0, "qkv", 0.1), None, 1, 1)
        return rounded(config, tensors, recipe)

    made = Bench(Shelf(loaded, quantise=quantise), config, tensors)
    return made


def test_a_recipe_is_quantised_once_and_costs_nothing_the_next_time(bench: Bench) -> None:
    recipe = bench.recipe(4)
    first = bench.shelf.quantised(recipe, "bfloat16").report
    again = bench.shelf.quantised(recipe, "bfloat16").report
    assert (first.seconds, first.cached) == (1.5, False)
    assert (again.seconds, again.cached) == (0.0, True)
    bench.shelf.llama("bfloat16", recipe, 8)
    bench.shelf.llama("bfloat16", recipe, 16)
    assert bench.asked == [(4, "bfloat16")]
    bench.shelf.llama("float32", recipe)
    assert bench.asked == [(4, "bfloat16"), (4, "float32")]


def test_crossovers_share_one_network(bench: Bench) -> None:
    one, other = (bench.shelf.llama("bfloat16", bench.recipe(4), rows) for rows in (8, 16))
    assert (one.crossover, other.crossover) == (8, 16)
    assert one.embedding is other.embedding


def test_the_recipes_asked_for_last_stay(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two builds and their drafts in a shelf; here of two, which makes the test short."""
    assert shelf_module.KEPT == 4
    monkeypatch.setattr(shelf_module, "KEPT", 2)
    held: dict[int, weakref.ref[Any]] = {}
    for bits in (8, 4, 8, 2):
        network = bench.shelf.llama("bfloat16", bench.recipe(bits))
        held[bits] = weakref.ref(network.embedding)
        del network
    gc.collect()
    assert [bits for bits, ref in held.items() if ref() is None] == [4]
    assert [bits for bits in held if bench.shelf.holds("bfloat16", bench.recipe(bits))] == [8, 2]
    assert bench.asked == [(8, "bfloat16"), (4, "bfloat16"), (2, "bfloat16")]


def test_full_precisions_stay_beside_them(bench: Bench) -> None:
    full = bench.shelf.llama("bfloat16")
    for bits in (8, 4, 3, 2):
        bench.shelf.llama("bfloat16", bench.recipe(bits))
    assert bench.shelf.llama("bfloat16") is full and bench.shelf.holds("bfloat16")


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_the_judge_has_the_values_that_the_codes_stand_for(bench: Bench, bits: int) -> None:
    recipe = bench.recipe(bits)
    judge = bench.shelf.judge("bfloat16", recipe)
    assert judge.precision == "float32"
    weights = rounded(bench.config, bench.tensors, recipe)
    truth = Llama(bench.config, meant_tensors(bench.config, bench.tensors, weights), "float32")
    torch.testing.assert_close(logits(judge, TEXT), logits(truth, TEXT), rtol=1e-5, atol=1e-5)
    gone = weakref.ref(judge)
    del judge
    gc.collect()
    assert gone() is None
    assert not bench.shelf.holds("float32"), "the full model was made for nothing"


def test_the_judge_of_a_full_build_is_the_full_model(bench: Bench) -> None:
    assert bench.shelf.judge("bfloat16", None) is bench.shelf.llama("float32")


def test_what_is_to_be_made_is_told_and_can_be_stopped(bench: Bench) -> None:
    class Stop(Exception):
        pass

    told: list[str] = []

    def stop() -> None:
        raise Stop

    watch = Watch(lambda recipe: told.append(recipe.method), UNWATCHED.pressed, stop)
    with pytest.raises(Stop):
        bench.shelf.quantised(bench.recipe(4), "bfloat16", watch)
    assert told == ["rtn"]
    bench.shelf.quantised(bench.recipe(4), "bfloat16")
    with pytest.raises(Stop):  # while its matrices are laid out
        bench.shelf.llama("bfloat16", bench.recipe(4), 0, watch)
    assert told == ["rtn"] and not bench.shelf.holds("bfloat16", bench.recipe(4))
    bench.shelf.llama("bfloat16", bench.recipe(4))
