"""Scores that rounding tied are told apart, and nothing else is touched."""

from __future__ import annotations

import pytest
import torch

from kernels.linear.sharpen import ROUNDING, sharpen


def rounded(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """What a head in x's type gives: the exact product rounded once (float64 is the oracle)."""
    exact = x.to(torch.float64) @ weight.to(torch.float64).T
    return exact.to(x.dtype).to(torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_the_largest_score_is_that_of_the_exact_product(dtype, rows):
    generator = torch.Generator().manual_seed(rows)
    # Scores around 20 that differ by less than the type can tell: every row has ties.
    weight = (1 + torch.randn(500, 64, generator=generator) / 400).to(dtype)
    x = (0.3 + torch.randn(rows, 64, generator=generator) / 100).to(dtype)
    exact = x.to(torch.float64) @ weight.to(torch.float64).T
    before = rounded(x, weight)
    tied = (before == before.max(dim=-1, keepdim=True).values).sum(dim=-1)
    assert int(tied.max()) > 1  # the fault is there to be cured
    after = sharpen(before.clone(), x, weight.__getitem__)
    assert torch.equal(after.argmax(dim=-1), exact.argmax(dim=-1))
    changed = after != before
    assert torch.allclose(after[changed].to(torch.float64), exact[changed], atol=1e-4)


def test_scores_far_from_the_largest_are_left_alone():
    generator = torch.Generator().manual_seed(7)
    weight = torch.randn(2000, 64, generator=generator).to(torch.bfloat16)
    x = torch.randn(4, 64, generator=generator).to(torch.bfloat16)
    before = rounded(x, weight)
    after = sharpen(before.clone(), x, weight.__getitem__)
    best = before.max(dim=-1, keepdim=True).values
    far = before < best * (1 - 2 * ROUNDING[torch.bfloat16]) - 1e-6
    assert torch.equal(after[far], before[far])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_a_number_stays_so(value):
    weight = torch.ones(10, 4, dtype=torch.bfloat16)
    x = torch.ones(2, 4, dtype=torch.bfloat16)
    x[1, 2] = value
    scores = (x.float() @ weight.float().T).to(torch.bfloat16).float()
    after = sharpen(scores, x, weight.__getitem__)
    assert not torch.isfinite(after[1]).any()
    assert torch.isfinite(after[0]).all()
