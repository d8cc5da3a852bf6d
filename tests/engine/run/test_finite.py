"""Where a pass broke: against tensors spoiled at a known place."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rounded_weights import rounded
from torch import Tensor

from engine.config import WeightsConfig
from engine.model.llama import Llama
from engine.run.scoring import first_bad_layer, logits

PLACES = {
    "layers.0.q": "layer 0: qkv gave nan",
    "layers.0.v": "layer 0: qkv gave nan",
    "layers.1.o": "layer 1: o gave nan",
    "layers.1.attention_norm": "layer 1: qkv was given nan",
    "layers.1.mlp_norm": "layer 1: gate_up was given nan",
    "layers.0.up": "layer 0: gate_up gave nan",
    "layers.0.down": "layer 0: down gave nan",
    "final_norm": "the final norm or the head",
}


@pytest.mark.parametrize(("tensor", "where"), PLACES.items())
def test_a_spoiled_tensor_is_found_by_layer_and_matrix(
    make_model: Callable[..., Llama], prompt: Callable[..., list[int]], tensor: str, where: str
) -> None:
    def spoil(tensors: dict[str, Tensor]) -> None:
        tensors[tensor].view(-1)[0] = float("nan")

    assert first_bad_layer(make_model(spoil=spoil), prompt(5)) == where


def test_an_overflow_is_told_with_its_value(
    make_model: Callable[..., Llama], prompt: Callable[..., list[int]]
) -> None:
    """float16 ends at 65,504: a large weight makes infinity there, and a number in float32."""

    def swell(tensors: dict[str, Tensor]) -> None:
        tensors["layers.1.down"] *= 60_000
        tensors["layers.1.up"] *= 1_000

    assert bool(torch.isfinite(logits(make_model(spoil=swell), prompt(5))).all())
    found = first_bad_layer(make_model("float16", spoil=swell), prompt(5))
    assert found in ("layer 1: down gave inf", "layer 1: down gave -inf")


@pytest.mark.parametrize("bits", [8, 4, 3])
def test_a_quantised_matrix_is_told_with_its_width(
    make_model: Callable[..., Llama], prompt: Callable[..., list[int]], bits: int
) -> None:
    kept: dict[str, Tensor] = {}
    full = make_model(spoil=kept.update)
    weights = rounded(full.config, kept, WeightsConfig(bits=bits))
    weights.grids["layers.1.o"].scale[0, 0] = float("inf")
    broken = Llama(full.config, kept, "float32", quantised=weights)
    found = first_bad_layer(broken, prompt(5))
    assert found.startswith(f"layer 1: o ({bits} bits, ") and " gave " in found


def test_looking_changes_nothing(
    make_model: Callable[..., Llama], prompt: Callable[..., list[int]]
) -> None:
    def spoil(tensors: dict[str, Tensor]) -> None:
        tensors["layers.1.down"][0, 0] = float("inf")

    model = make_model(spoil=spoil)
    forms = [linear for linear in model.linears]
    first_bad_layer(model, prompt(5))
    assert all(a is b for a, b in zip(model.linears, forms, strict=True))
