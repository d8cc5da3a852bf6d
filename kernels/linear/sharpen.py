"""The largest scores of a low-precision head, told apart.

A bfloat16 product is summed in float32 and rounded once, at its end, to 8 bits: a score between 16
and 32 is a multiple of 1/8, wider than the gap that often separates the two likeliest tokens. They
come out equal, and greedy decoding takes the one with the smaller number. The cure costs a few
rows: the scores within two roundings of the largest are computed again and kept in float32.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ROUNDING = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""Relative spacing of the type's values, at most."""


def sharpen(scores: Tensor, x: Tensor, rows: Callable[[Tensor], Tensor]) -> Tensor:
    """Recompute, in place, the scores that rounding may have tied with their row's largest.

    `scores` [R, V] float32 hold x · Wᵀ rounded to x's type; `x` [R, H] is in that type, and so are
    the rows of W that `rows` gives: ids [M] -> [M, H]. Returns `scores`. NaN and infinity stay as
    they are.
    """
    best = scores.max(dim=-1, keepdim=True).values  # [R, 1]
    margin = best.abs() * (2 * ROUNDING[x.dtype])
    row, token = (scores >= best - margin).nonzero(as_tuple=True)  # [M], M a little over R
    exact = (x[row].to(torch.float32) * rows(token).to(torch.float32)).sum(dim=-1)
    scores[row, token] = exact
    return scores
