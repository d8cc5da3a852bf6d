"""Fused attention against the naive form, and the naive form against a loop over scores."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kernels.attention import fused
from kernels.attention.mask import additive, visible
from kernels.attention.reference import attention as naive

TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 2e-2}


def draw(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def by_hand(query: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
    """One query, one head, one key at a time, in Python floats."""
    batch, length, heads, width = query.shape
    group = heads // key.shape[1]
    out = torch.zeros(batch, length, heads, width, dtype=torch.float64)
    for b in range(batch):
        for i in range(length):
            for h in range(heads):
                keys = [j for j in range(key.shape[2]) if seen[b, i, j]]
                scores = [
                    float(query[b, i, h].double() @ key[b, h // group, j].double())
                    / math.sqrt(width)
                    for j in keys
                ]
                weights = [math.exp(score - max(scores)) for score in scores]
                for j, weight in zip(keys, weights, strict=True):
                    out[b, i, h] += weight / sum(weights) * value[b, h // group, j].double()
    return out.flatten(2)


def test_the_naive_form_is_the_definition() -> None:
    query = draw(2, 3, 6, 5, dtype=torch.float32, seed=0)
    key, value = draw(2, 2, 2, 7, 5, dtype=torch.float32, seed=1)
    seen = visible(torch.tensor([[4, 5, 6], [0, 1, 2]]), 0, 7)
    truth = by_hand(query, key, value, seen)
    torch.testing.assert_close(naive(query, key, value, seen).double(), truth, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("heads", [(9, 3), (4, 4), (8, 1)], ids=str)
@pytest.mark.parametrize("width", [64, 16, 5])
@pytest.mark.parametrize("shape", [(1, 1, 33), (3, 1, 20), (1, 29, 29), (1, 5, 40), (2, 3, 17)])
def test_the_fused_form_is_the_naive_one(
    dtype: torch.dtype, heads: tuple[int, int], width: int, shape: tuple[int, int, int]
) -> None:
    batch, length, keys = shape
    query = draw(batch, length, heads[0], width, dtype=dtype, seed=2)
    pool = draw(2, batch, heads[1], 64, width, dtype=dtype, seed=3)
    key, value = pool[0][:, :, :keys], pool[1][:, :, :keys]  # strided, as the cache gives them
    last = torch.arange(keys - length, keys).expand(batch, -1)
    seen = visible(last, 0, keys)
    truth = naive(query, key, value, seen).flatten(0, 1)
    masked = fused.attention(query, key, value, additive(seen, dtype), causal=False)
    torch.testing.assert_close(masked, truth, rtol=0, atol=TOLERANCE[dtype])
    if length == 1:  # a last row sees every key: no mask is needed
        bare = fused.attention(query, key, value, None, causal=False)
        torch.testing.assert_close(bare, truth, rtol=0, atol=TOLERANCE[dtype])
    if length == keys:
        causal = fused.attention(query, key, value, None, causal=True)
        torch.testing.assert_close(causal, truth, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_what_stands_behind_the_mask_does_not_matter(dtype: torch.dtype) -> None:
    query = draw(2, 1, 6, 16, dtype=dtype, seed=4)
    key, value = draw(2, 2, 3, 12, 16, dtype=dtype, seed=5)
    mask = additive(visible(torch.tensor([[11], [4]]), 0, 12), dtype)
    before = fused.attention(query, key, value, mask, causal=False)
    key[1, :, 5:], value[1, :, 5:] = 1e4, -1e4
    after = fused.attention(query, key, value, mask, causal=False)
    assert torch.equal(before, after)
    unmasked = fused.attention(query, key, value, None, causal=False)
    assert not torch.equal(before[1], unmasked[1])


@pytest.mark.parametrize(("window", "first"), [(None, 0), (3, 0), (3, 4), (1, 0), (100, 0)])
def test_visibility_is_the_past_within_the_window(window: int | None, first: int) -> None:
    positions = torch.tensor([[6, 7, 8]])
    seen = visible(positions, first, 12 - first, window)
    for row, position in enumerate([6, 7, 8]):
        for column, key in enumerate(range(first, 12)):
            expected = key <= position and (window is None or position - key < window)
            assert bool(seen[0, row, column]) == expected


def test_the_kernel_behind_the_fused_form_is_named() -> None:
    name = fused.backend(9, 3, 64, torch.float32, "cpu")
    assert name in {"math", "flash", "efficient", "cudnn", "unknown"}
