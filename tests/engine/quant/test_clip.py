"""Grids narrower than their weights, against every width tried out one row at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.quant.clip import SHARES, fit_narrower
from engine.quant.grid import fit_grid, grid_between, round_to
from engine.weight_format import ROW, Scheme


def cost(
    row: Tensor, importance: Tensor, scale: Tensor, zero: Tensor | None, scheme: Scheme
) -> float:
    kept = round_to(row, scale, zero, scheme).dequantise()
    return float((importance * (kept - row).pow(2)).sum(dtype=torch.float64))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [4, 3, 2])
def test_each_row_gets_the_width_of_least_cost(bits: int, symmetric: bool) -> None:
    source = torch.Generator().manual_seed(1)
    weight, importance = torch.randn(6, 32, generator=source), torch.rand(32, generator=source)
    scheme = Scheme(bits, ROW, symmetric)
    scale, zero = fit_narrower(weight, importance, scheme)
    for index in range(6):
        row = weight[index : index + 1]
        low, high = row.aminmax(dim=1, keepdim=True)
        tried = [
            cost(row, importance, *grid_between(low * share, high * share, scheme), scheme)
            for share in SHARES
        ]
        own = None if zero is None else zero[index].view(1, 1)
        assert cost(row, importance, scale[index].view(1, 1), own, scheme) == pytest.approx(
            min(tried), rel=1e-5
        )


def test_two_bits_are_better_spent_on_the_many() -> None:
    weight = torch.randn(64, 32, generator=torch.Generator().manual_seed(2))
    scheme = Scheme(2, ROW)
    plain = round_to(weight, *fit_grid(weight, scheme), scheme).dequantise()
    scale, zero = fit_narrower(weight, torch.ones(32), scheme)
    assert zero is not None
    narrow = round_to(weight, scale[:, None], zero[:, None], scheme).dequantise()
    assert (narrow - weight).pow(2).sum() < 0.8 * (plain - weight).pow(2).sum()


def test_a_weight_that_counts_for_everything_is_not_cut_short() -> None:
    weight = torch.cat((torch.tensor([[4.0]]), torch.randn(1, 31)), dim=1)
    importance = torch.zeros(32)
    importance[0] = 1.0
    scale, zero = fit_narrower(weight, importance, Scheme(4, ROW))
    assert zero is not None
    reach = float(scale * 7 + zero)
    assert abs(reach - 4.0) <= float(scale) / 2


def test_a_group_of_zeros_keeps_its_scale_of_zero() -> None:
    scale, zero = fit_narrower(torch.zeros(2, 8), torch.ones(8), Scheme(4, ROW))
    assert zero is not None
    assert scale.tolist() == [0.0, 0.0] and zero.tolist() == [0.0, 0.0]


def test_a_range_too_wide_names_its_matrix() -> None:
    with pytest.raises(ValueError, match=r"layers\.1\.down holds weights too large"):
        fit_narrower(torch.tensor([[3e38, -3e38]]), torch.ones(2), Scheme(2, ROW), "layers.1.down")
