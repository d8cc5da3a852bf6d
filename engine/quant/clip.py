"""A grid narrower than its weights: the few at the ends are cut short so that the many lie finer.

At 4 bits little is to be won; at 2 bits a grid that reaches the largest of 32 ordinary weights puts
most of the others on two codes. How narrow is best is tried out, for every row on its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.quant.grid import grid_between, middle, nearest_codes
from engine.weight_format import Scheme

SHARES = tuple(1 - 0.05 * step for step in range(10))
"""Of the full range, tried from the widest; the wider wins a tie."""


@torch.no_grad()
def fit_narrower(
    weight: Tensor, importance: Tensor, scheme: Scheme, name: str = "the matrix"
) -> tuple[Tensor, Tensor | None]:
    """For each row of one group [N, K] the grid of least cost among `SHARES` of its full range.

    The cost of a row is the sum over K of importance · error², `importance` [K] not negative. Gives
    (scale, zero), float32 [N] holding bfloat16 values, zero None where the scheme is symmetric.

    Raises:
        ValueError: the range of a row is too wide for a finite scale.
    """
    low, high = weight.aminmax(dim=1, keepdim=True)  # [N, 1]
    scale, zero = grid_between(low, high, scheme, name)
    least = _cost(weight, importance, scale, zero, scheme)
    for share in SHARES[1:]:
        other_scale, other_zero = grid_between(low * share, high * share, scheme, name)
        cost = _cost(weight, importance, other_scale, other_zero, scheme)
        better = (cost < least)[:, None]
        least = torch.minimum(cost, least)
        scale = torch.where(better, other_scale, scale)
        if zero is not None and other_zero is not None:
            zero = torch.where(better, other_zero, zero)
    return scale[:, 0], None if zero is None else zero[:, 0]


def _cost(
    weight: Tensor, importance: Tensor, scale: Tensor, zero: Tensor | None, scheme: Scheme
) -> Tensor:
    """[N, K] rounded to grids [N, 1] -> [N]."""
    value = nearest_codes(weight, scale, zero, scheme).sub_(middle(scheme)).mul_(scale)
    if zero is not None:
        value.add_(zero)
    return value.sub_(weight).square_() @ importance
