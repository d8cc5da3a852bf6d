"""An engine runs only the weights that its configuration speaks of: its account counts on them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from rounded_weights import rounded
from torch import Tensor

from engine.config import EngineConfig, RunConfig, WeightsConfig, WorkloadConfig
from engine.model.llama import Llama
from engine.run.engine import Engine

FOUR = WeightsConfig(4, group=16, embedding=16, crossover=8)
"""The tiny model's widths, 32 and 48, share groups of 16."""


def engine(model: Llama, weights: WeightsConfig) -> Engine:
    return Engine(
        model, EngineConfig(WorkloadConfig(8, 4), run=RunConfig(model.precision), weights=weights)
    )


@pytest.fixture
def four_bits(make_model: Callable[..., Llama]) -> Llama:
    found: dict[str, Tensor] = {}
    plain = make_model(spoil=found.update)
    tensors = dict(found)
    return Llama(
        plain.config,
        tensors,
        "float32",
        quantised=rounded(plain.config, tensors, FOUR),
        crossover=8,
        forms=("packed",),
    )


def test_the_weights_it_asks_for_run(four_bits: Llama) -> None:
    engine(four_bits, FOUR)
    # what the knobs say of calibration or of a group nobody uses changes no weight
    engine(four_bits, replace(FOUR, calibration=64))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (WeightsConfig(), r"layers.0.qkv is 4 bits in groups of 16 and .* in the run's precision"),
        (replace(FOUR, bits=3), r"layers.0.qkv is 4 bits .* asks for 3 bits in groups of 16"),
        (replace(FOUR, group=-1), r"asks for 4 bits by the row"),
        (replace(FOUR, symmetric="on"), r"asks for 4 bits in groups of 16, symmetric"),
        (replace(FOUR, mlp=16), r"layers.0.gate_up is 4 bits .* in the run's precision"),
        (replace(FOUR, embedding=8), r"embedding is in the run's precision .* 8 bits by the row"),
        (replace(FOUR, crossover=0), r"dense weights above 8 rows .* asks for 0"),
    ],
)
def test_any_others_are_refused(four_bits: Llama, asked: WeightsConfig, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        engine(four_bits, asked)


def test_a_full_model_does_not_pass_for_a_quantised_one(model: Llama) -> None:
    with pytest.raises(ValueError, match="is in the run's precision and the configuration asks"):
        engine(model, FOUR)
    engine(model, WeightsConfig(crossover=5, group=77, method="awq"))


def test_another_crossover_makes_it_fit(four_bits: Llama) -> None:
    engine(four_bits.with_crossover(0), replace(FOUR, crossover=0))
