"""The linear layer in 16 bits on a processor that multiplies in 32 only, where no compiler is.

Without an instruction for it, torch's product of bfloat16 or float16 widens every number as often
as it meets it. Few rows wait for memory, and there the narrow weight still pays: half the bytes. Of
more rows the weight is widened once, a piece that stays in a core's cache at a time, and multiplied
in float32. Figures are in `row_major`, whose products of few rows are the faster where C is.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

FEW_ROWS = 5
"""Products of so many rows are torch's own."""

PIECE = 1 << 18
"""Weights widened at a time: a megabyte of float32."""


class WidenedLinear:
    """y = x Wᵀ + b with W in 16 bits. `weight` [N, K] stays readable."""

    form = f"plain, float32 above {FEW_ROWS} rows"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N] in the dtype of `x`."""
        if x.shape[0] <= FEW_ROWS:
            return functional.linear(x, self.weight, self.bias)
        return widened_product(x, self.weight, self.bias)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)


def widened_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b summed in float32 and rounded once: [T, K], [N, K], [N] -> [T, N], all in one 16-bit
    dtype."""
    outputs, inputs = weight.shape
    wide = x.to(torch.float32)
    y = torch.empty(x.shape[0], outputs, dtype=x.dtype)
    step = min(rows_of_a_piece(inputs), outputs)
    piece = torch.empty(step, inputs)
    product = torch.empty(x.shape[0], step)
    for first in range(0, outputs, step):
        part = weight[first : first + step]
        if part.shape[0] < step:
            piece, product = piece[: part.shape[0]], product[:, : part.shape[0]]
        torch.mm(wide, piece.copy_(part).t(), out=product)
        if bias is not None:
            product += bias[first : first + step]
        y[:, first : first + step] = product
    return y


def worth_widening(outputs: int, inputs: int) -> bool:
    """Whether a matrix is large enough that its product takes longer than all the calls."""
    return outputs * inputs >= PIECE


def rows_of_a_piece(inputs: int) -> int:
    """Outputs that are widened at a time."""
    return max(PIECE // inputs, 1)
