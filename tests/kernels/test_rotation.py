"""Rotary embedding against complex multiplication, and the scalings against their definition."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.rope.frequencies import inverse_frequencies, scale_linear, scale_llama3
from kernels.rope.reference import rotate
from kernels.rope.rotation import Rotation


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(1, 12, 64), (5, 3, 16), (7, 1, 2), (130, 2, 128)], ids=str)
def test_a_pair_turns_by_position_times_frequency(
    dtype: torch.dtype, shape: tuple[int, int, int]
) -> None:
    """Oracle: (x1 + i x2) · exp(i · angle) in complex128."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(dtype)
    positions = torch.randint(0, 4096, (shape[0],), generator=generator)
    frequencies = inverse_frequencies(shape[2], 10_000.0)
    half = shape[2] // 2
    pair = torch.complex(x[..., :half].double(), x[..., half:].double())
    angle = (positions[:, None].float() * frequencies).double()[:, None]
    turned = pair * torch.polar(torch.ones_like(angle), angle)
    truth = torch.cat((turned.real, turned.imag), -1)
    tolerance = 2e-6 if dtype == torch.float32 else 2e-2
    fast = Rotation.at(positions, frequencies)(x)
    for got in (fast, rotate(x, positions, frequencies)):
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), truth, rtol=0, atol=tolerance * 4)


def test_a_score_depends_on_the_distance_alone() -> None:
    q, k = torch.randn(2, 1, 1, 64, generator=torch.Generator().manual_seed(5))
    frequencies = inverse_frequencies(64, 10_000.0)

    def score(query_at: int, key_at: int) -> float:
        turned_q = Rotation.at(torch.tensor([query_at]), frequencies)(q)
        turned_k = Rotation.at(torch.tensor([key_at]), frequencies)(k)
        return float((turned_q * turned_k).sum())

    assert score(9, 4) == pytest.approx(score(105, 100), abs=1e-4)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-2)


def test_position_zero_turns_nothing() -> None:
    x = torch.randn(1, 2, 8, generator=torch.Generator().manual_seed(6))
    assert torch.equal(Rotation.at(torch.tensor([0]), inverse_frequencies(8, 1e4))(x), x)


def test_frequencies_fall_from_one_to_almost_one_over_base() -> None:
    frequencies = inverse_frequencies(64, 100_000.0)
    assert float(frequencies[0]) == 1.0
    assert float(frequencies[-1]) == pytest.approx(100_000.0 ** (-62 / 64), rel=1e-6)


def test_linear_scaling_makes_a_position_act_like_an_earlier_one() -> None:
    x = torch.randn(1, 1, 16, generator=torch.Generator().manual_seed(7))
    plain = inverse_frequencies(16, 1e4)
    slowed = Rotation.at(torch.tensor([40]), scale_linear(plain, 4.0))(x)
    earlier = Rotation.at(torch.tensor([10]), plain)(x)
    torch.testing.assert_close(slowed, earlier, rtol=0, atol=2e-6)


def test_llama3_scaling_keeps_fast_pairs_slows_slow_ones_and_blends_between() -> None:
    factor, low, high, old = 8.0, 1.0, 4.0, 8192
    plain = inverse_frequencies(128, 500_000.0)
    scaled = scale_llama3(plain, factor, low, high, old)
    for before, after in zip(plain.tolist(), scaled.tolist(), strict=True):
        wavelength = 2 * math.pi / before
        if wavelength < old / high:
            expected = before
        elif wavelength > old / low:
            expected = before / factor
        else:
            smooth = (old / wavelength - low) / (high - low)
            expected = (1 - smooth) * before / factor + smooth * before
        assert after == pytest.approx(expected, rel=1e-5)
    assert {float(plain[0]) == float(scaled[0]), float(plain[-1]) > float(scaled[-1])} == {True}
