"""RMS normalisation against float64 and torch's own."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from kernels.norm.reference import rms_norm
from kernels.norm.rms_norm import RMSNorm

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(1, 576), (5, 123), (3, 7, 16), (2, 1)], ids=str)
def test_both_forms_are_the_formula(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(3)
    x = (torch.randn(shape, generator=generator) * 4).to(dtype)
    weight = torch.rand(shape[-1], generator=generator) + 0.5
    wide = x.double()
    truth = wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    for got in (rms_norm(x, weight, 1e-5), RMSNorm(weight, 1e-5)(x)):
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), truth, rtol=TOLERANCE[dtype], atol=1e-6)


def test_it_is_torchs_rms_norm() -> None:
    x = torch.randn(9, 64, generator=torch.Generator().manual_seed(1))
    weight = torch.linspace(0.1, 2.0, 64)
    truth = functional.rms_norm(x, (64,), weight, 1e-6)
    torch.testing.assert_close(RMSNorm(weight, 1e-6)(x), truth, rtol=2e-6, atol=1e-6)


def test_a_weight_for_every_head_norms_each_head_by_itself() -> None:
    x = torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(2))
    weight = torch.rand(3, 8, generator=torch.Generator().manual_seed(4))
    got = RMSNorm(weight, 1e-5)(x)
    for head in range(3):
        alone = functional.rms_norm(x[:, head], (8,), weight[head], 1e-5)
        torch.testing.assert_close(got[:, head], alone, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e15])
def test_silence_and_thunder_stay_finite(scale: float) -> None:
    """eps carries an all-zero row; a row whose squares overflow float32 is beyond any norm."""
    x = torch.full((1, 64), scale)
    got = RMSNorm(torch.ones(64), 1e-5)(x)
    assert bool(torch.isfinite(got).all())
    assert float(got.abs().max()) <= 1.0 + 1e-5
