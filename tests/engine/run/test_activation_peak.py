"""The peak of temporary tensors against sums done by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from episodes import configure, squeezed

from engine.model.llama import Llama
from engine.page_map import CELL_SIGNS
from engine.run.activation_peak import ActivationPeak, decode_lengths
from engine.run.engine import Engine

KIB = 256 * 4
"""Bytes of 256 float32."""


def ones(count: int = 256) -> torch.Tensor:
    return torch.ones(count)


def test_it_is_the_most_that_lived_at_once() -> None:
    with ActivationPeak() as mode:
        first = ones()
        second = first + first
        del first
        third = second * 2
        del second, third
        ones()
    assert (mode.peak, mode.live) == (2 * KIB, 0)


def test_views_and_writes_in_place_cost_nothing() -> None:
    outside = ones()
    with ActivationPeak() as mode:
        outside.view(16, 16).transpose(0, 1).mul_(2)
        outside[3:9].add_(1)
        outside.index_copy_(0, torch.tensor([1]), torch.tensor([5.0]))
    assert mode.peak <= 8 + 4  # the index and the value themselves


def test_a_tensor_held_by_a_view_still_counts() -> None:
    with ActivationPeak() as mode:
        corner = ones()[:1]
        assert mode.live == KIB
        del corner
        assert mode.live == 0


def peak(model: Llama, **settings: Any) -> int:
    return Engine(model, configure(model.precision, **settings)).allocated()["activations"]


def test_a_longer_prompt_needs_more_and_a_chunk_less(model: Llama) -> None:
    assert peak(model, prompt=150) > peak(model) > peak(model, chunk=16)
    assert peak(model, prompt=10, batch=40) > peak(model, prompt=10)


def test_bfloat16_needs_less_than_float32(make_model: Callable[..., Llama]) -> None:
    assert peak(make_model("bfloat16"), prompt=100) < peak(make_model(), prompt=100)


@pytest.mark.parametrize(
    ("layout", "sharing"), [("contiguous", "off"), ("paged", "off"), ("paged", "on")]
)
@pytest.mark.parametrize("bits", [0, 16, 8, 4])
def test_measuring_leaves_the_engines_own_cache_empty(
    model: Llama, layout: str, bits: int, sharing: str
) -> None:
    engine = Engine(model, configure(batch=3, layout=layout, bits=bits, sharing=sharing))
    account = engine.allocated()
    page_map = engine.page_map()
    assert set(page_map.cells) == {CELL_SIGNS["free"]}
    assert (engine.held_tokens, engine.reserved_tokens, engine.counters.copies) == (0, 0, 0)
    assert engine.allocated() == account


def test_the_longest_requests_fill_every_seat_of_the_largest_decode_step(model: Llama) -> None:
    config = configure(batch=3, layout="paged", block=16)
    plan = Engine(model, config).plan
    assert decode_lengths(config, plan, 3) == [79, 79, 79]
    tight = squeezed(model, configure(batch=4, layout="paged", block=16), 7)
    plan = Engine(model, tight).plan
    assert plan.blocks == 7
    assert decode_lengths(tight, plan, 4) == [32, 32, 32, 16]  # all seven blocks, every seat
