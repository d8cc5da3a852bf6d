"""What a grid can hold, held against exact arithmetic on the formulas it is defined by."""

from __future__ import annotations

import struct
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.quant.grid import GridWeight, fit_grid, grid_between, round_to
from engine.quant.rtn import rtn
from engine.weight_format import ROW, Scheme

BITS = (8, 4, 3, 2)


def dequantised(grid: GridWeight) -> list[list[Fraction]]:
    """w = scale (q - 2^(b-1)) + zero in exact arithmetic, a weight at a time."""
    columns = grid.codes.shape[1]
    width = columns // grid.scale.shape[1]
    return [
        [
            Fraction(float(grid.scale[row, column // width]))
            * (int(grid.codes[row, column]) - 2 ** (grid.scheme.bits - 1))
            + (0 if grid.zero is None else Fraction(float(grid.zero[row, column // width])))
            for column in range(columns)
        ]
        for row in range(len(grid.codes))
    ]


def is_bfloat16(value: float) -> bool:
    return struct.pack(">f", value)[2:] == b"\0\0"


finite = st.floats(-1e6, 1e6, width=32, allow_subnormal=False)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[Tensor, Scheme]:
    """Small matrices of any values, some rows shifted far from zero, with a scheme that fits."""
    group, groups, rows = draw(st.integers(1, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    columns = group * groups
    values = [draw(st.lists(finite, min_size=columns, max_size=columns)) for _ in range(rows)]
    shift = draw(st.sampled_from((0.0, 0.0, 1.0, -1000.25)))
    scheme = Scheme(draw(st.sampled_from(BITS)), group, draw(st.booleans()))
    return torch.tensor(values, dtype=torch.float32) * draw(
        st.sampled_from((1.0, 1e-6))
    ) + shift, scheme


@settings(deadline=None)
@given(matrices())
def test_no_weight_is_further_than_half_a_step_from_its_value(case: tuple[Tensor, Scheme]) -> None:
    weight, scheme = case
    grid = rtn(weight, scheme)
    width = weight.shape[1] // grid.scale.shape[1]
    for row, values in enumerate(dequantised(grid)):
        for column, value in enumerate(values):
            given_weight = float(weight[row, column])
            error = abs(Fraction(given_weight) - value)
            step = Fraction(float(grid.scale[row, column // width]))
            # Differences and quotients are taken in float32: a few of its last bits of the largest
            # number of the group.
            size = float(weight[row].abs().max())
            assert error <= step / 2 + Fraction(size) * 4 / 2**23


@settings(deadline=None)
@given(matrices())
def test_scales_and_zeros_are_numbers_of_bfloat16(case: tuple[Tensor, Scheme]) -> None:
    weight, scheme = case
    scale, zero = fit_grid(weight, scheme)
    assert all(map(is_bfloat16, scale.flatten().tolist()))
    assert (zero is None) == scheme.symmetric
    if zero is not None:
        assert all(map(is_bfloat16, zero.flatten().tolist()))


@settings(deadline=None)
@given(matrices())
def test_dequantised_weights_are_the_formulas(case: tuple[Tensor, Scheme]) -> None:
    weight, scheme = case
    grid = rtn(weight, scheme)
    exact = torch.tensor(
        [[float(value) for value in row] for row in dequantised(grid)], dtype=torch.float64
    )
    # One product and one sum in float32.
    largest = weight.abs().max().to(torch.float64) + 2**scheme.bits * grid.scale.max()
    torch.testing.assert_close(
        grid.dequantise().to(torch.float64), exact, rtol=0, atol=float(largest) * 2**-22
    )


@settings(deadline=None)
@given(matrices())
def test_weights_on_their_grid_stay_where_they_are(case: tuple[Tensor, Scheme]) -> None:
    grid = rtn(*case)
    again = round_to(grid.dequantise(), grid.scale, grid.zero, grid.scheme)
    lively = (grid.scale > 0).repeat_interleave(grid.shape[1] // grid.scale.shape[1], dim=1)
    coarse = grid.scale.amin() > grid.dequantise().abs().max() * 2**-20
    if bool(coarse) and bool(lively.all()):  # finer steps than float32 can tell apart are no grid
        assert torch.equal(again.codes, grid.codes)


@pytest.mark.parametrize("bits", BITS)
def test_a_symmetric_grid_uses_the_code_that_only_one_side_has(bits: int) -> None:
    half = 2 ** (bits - 1)
    weight = torch.tensor([[-1.0, half - 1.0, -float(half), 0.0]])
    grid = rtn(weight, Scheme(bits, ROW, symmetric=True))
    assert grid.scale.item() == 1.0
    assert grid.codes.tolist() == [[half - 1, 2 * half - 1, 0, half]]
    assert torch.equal(grid.dequantise(), weight)


@pytest.mark.parametrize("bits", BITS)
def test_an_asymmetric_grid_reaches_from_the_smallest_weight_to_the_largest(bits: int) -> None:
    steps = 2**bits - 1
    weight = torch.arange(steps + 1, dtype=torch.float32)[None] * 0.5 + 3.0  # every code once
    grid = rtn(weight, Scheme(bits, ROW))
    assert grid.codes.tolist() == [list(range(steps + 1))]
    assert torch.equal(grid.dequantise(), weight)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", BITS)
def test_a_group_of_zeros_stays_zero(bits: int, symmetric: bool) -> None:
    weight = torch.cat((torch.zeros(2, 4), torch.ones(2, 4)), dim=1)
    kept = rtn(weight, Scheme(bits, 4, symmetric)).dequantise()
    assert torch.equal(kept[:, :4], torch.zeros(2, 4))


@pytest.mark.parametrize("bits", BITS)
def test_a_group_of_one_value_keeps_more_of_it_than_bfloat16_does(bits: int) -> None:
    value = 1.2345
    kept = rtn(torch.full((1, 8), value), Scheme(bits, 8)).dequantise()
    assert (kept - value).abs().max() < 1e-4  # bfloat16 alone: 0.003
    assert len(set(kept.flatten().tolist())) == 1


def test_a_range_far_from_zero_is_not_cut_off_by_the_rounding_of_its_zero() -> None:
    weight = 1000.3 + torch.linspace(0, 0.01, 16)[None]  # bfloat16 knows 1000 and 1004
    kept = rtn(weight, Scheme(4, ROW)).dequantise()
    assert (kept - weight).abs().max() < 0.02


@settings(deadline=None)
@given(st.integers(0, 2**31), st.sampled_from(BITS), st.booleans())
def test_a_finer_group_never_needs_a_longer_step(seed: int, bits: int, symmetric: bool) -> None:
    """Squares of errors are at most (scale / 2)² a weight: finer groups lower that bound, though in
    a single group chance may round better on the coarser grid. Zeros rounded to bfloat16 move a
    grid, and lengthen a step, by less than 1 %."""
    weight = torch.randn(4, 48, generator=torch.Generator().manual_seed(seed))
    coarse, fine = (fit_grid(weight, Scheme(bits, group, symmetric))[0] for group in (16, 8))
    assert bool((fine <= coarse.repeat_interleave(2, dim=1) * 1.01).all())


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", BITS)
def test_finer_groups_lose_less_of_ordinary_weights(bits: int, symmetric: bool) -> None:
    weight = torch.randn(64, 192, generator=torch.Generator().manual_seed(1))
    lost = [
        float((rtn(weight, Scheme(bits, group, symmetric)).dequantise() - weight).pow(2).sum())
        for group in (ROW, 96, 64, 32, 16)
    ]
    assert lost == sorted(lost, reverse=True)


def test_more_bits_lose_about_four_times_less_a_bit() -> None:
    """Of a uniform error step²/12, a step half as long leaves a quarter."""
    weight = torch.rand(64, 256, generator=torch.Generator().manual_seed(2))
    lost = {
        bits: float((rtn(weight, Scheme(bits, ROW)).dequantise() - weight).pow(2).mean())
        for bits in BITS
    }
    for bits, mean in lost.items():
        assert mean == pytest.approx((1 / (2**bits - 1)) ** 2 / 12, rel=0.1)


def test_weights_outside_a_clipped_range_go_to_its_ends() -> None:
    scheme = Scheme(4, ROW)
    scale, zero = grid_between(torch.tensor([[-1.0]]), torch.tensor([[1.0]]), scheme)
    grid = round_to(torch.tensor([[-9.0, 9.0, 0.0]]), scale, zero, scheme)
    assert grid.codes[0, :2].tolist() == [0, 15]
    assert grid.dequantise()[0, :2].tolist() == pytest.approx([-1.0, 1.0], abs=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_float_type_is_taken(dtype: torch.dtype) -> None:
    weight = torch.randn(4, 8, generator=torch.Generator().manual_seed(3)).to(dtype)
    expected = rtn(weight.to(torch.float32), Scheme(4, 4))
    assert torch.equal(rtn(weight, Scheme(4, 4)).codes, expected.codes)


def test_rows_are_told_apart_however_many_are_worked_on_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weight = torch.randn(7, 12, generator=torch.Generator().manual_seed(4))
    whole = rtn(weight, Scheme(3, 4))
    monkeypatch.setattr("engine.quant.grid.SLAB", 24)  # two rows
    parts = rtn(weight, Scheme(3, 4))
    assert torch.equal(whole.codes, parts.codes) and torch.equal(whole.scale, parts.scale)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_weight_that_is_no_number_is_refused_and_found(value: float) -> None:
    weight = torch.zeros(3, 8)
    weight[2, 5] = value
    with pytest.raises(ValueError, match=r"layers\.3\.qkv holds (nan|-?inf) in row 2, column 5"):
        rtn(weight, Scheme(4, 4), "layers.3.qkv")


def test_large_weights_whose_sum_overflows_are_taken() -> None:
    weight = torch.full((1, 8), 3e38)
    assert bool(torch.isfinite(rtn(weight, Scheme(8, ROW)).dequantise()).all())


def test_a_range_that_no_scale_can_step_over_is_refused() -> None:
    weight = torch.tensor([[3e38, -3e38]])
    with pytest.raises(ValueError, match="too large to quantise in row 0"):
        rtn(weight, Scheme(2, ROW))


def test_what_does_not_fit_together_is_refused() -> None:
    weight = torch.zeros(2, 12)
    with pytest.raises(ValueError, match="nearest: 4"):
        rtn(weight, Scheme(4, 5))
    with pytest.raises(ValueError, match="legal: 8, 4, 3, 2"):
        rtn(weight, Scheme(5, 4))
    with pytest.raises(ValueError, match=r"a matrix \[N, K\]"):
        rtn(torch.zeros(12), Scheme(4, 4))
    scale, zero = fit_grid(weight, Scheme(4, 4))
    with pytest.raises(ValueError, match="zeros are missing"):
        round_to(weight, scale, None, Scheme(4, 4))
    with pytest.raises(ValueError, match="has no zeros"):
        round_to(weight, scale, zero, Scheme(4, 4, symmetric=True))
    with pytest.raises(ValueError, match=r"scales are float32 \[2, 2\]"):
        round_to(weight, scale, zero, Scheme(4, 6))
    with pytest.raises(ValueError, match="codes are uint8"):
        GridWeight(torch.zeros(2, 12), scale, zero, Scheme(4, 4))
