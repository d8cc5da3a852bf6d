"""The peak of temporary tensors against sums done by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.config import EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.model.llama import Llama
from engine.run.activation_peak import ActivationPeak, measure

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


def test_a_longer_prompt_needs_more_and_a_chunk_less(model: Llama) -> None:
    def peak(prompt: int, batch: int = 1, chunk: int = 0) -> int:
        config = EngineConfig(WorkloadConfig(prompt, 8), ScheduleConfig(batch, chunk), RunConfig())
        return measure(model, config, prompt + 8)

    assert peak(150) > peak(60) > peak(60, chunk=16)
    assert peak(10, batch=40) > peak(10)


def test_bfloat16_needs_less_than_float32(make_model: Callable[..., Llama]) -> None:
    config = EngineConfig(WorkloadConfig(100, 8))
    peaks = [measure(make_model(precision), config, 108) for precision in ("float32", "bfloat16")]
    assert peaks[1] < peaks[0]
