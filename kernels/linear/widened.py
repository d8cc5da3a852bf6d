"""The linear layer in 16 bits on a processor that multiplies in 32 only.

Without an instruction for it, torch's product of bfloat16 or float16 widens every number as often
as it meets it. Here a weight is widened once: by a few rows in C, in registers (`widened.c`), where
the narrow weight still pays with half the bytes; by more a piece at a time that stays in a core's
cache, and then multiplied by torch in float32. 3072 x 576, weights from memory, two Zen 3 cores
(AVX2) that share one core's arithmetic, torch 2.13, ms:

    rows                   1      2      4      8     16     32     64    128
    torch's bfloat16    0.35   0.61   1.14   1.88   3.81   7.34   14.7   28.8
    in C                0.35   0.37   0.34   0.44   0.74   1.38   2.84   5.39
    by pieces           0.84   1.07   1.16   1.43   1.73   2.28   3.39   5.28
    torch's float32     0.97   1.73   1.90   1.49   1.78   2.20   3.18   4.94
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from kernels import native
from kernels.linear.bitstream import RUN

SOURCE = Path(__file__).with_name("widened.c")

_ARGUMENTS = "ppppppplllli"

FEW_ROWS = 5
"""Products of so many rows are torch's own where none is compiled."""

IN_C_ROWS = 64
"""Up to so many rows a compiled product runs."""

PIECE = 1 << 18
"""Weights widened at a time: a megabyte of float32."""


class WidenedLinear:
    """y = x Wᵀ + b with W in 16 bits. `weight` [N, K] stays readable."""

    bits, activations, groups = 16, 16, 1

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """Of a row-major weight."""
        self.weight = weight
        self.bias = bias
        self.dtype = weight.dtype
        self.outputs, self.inputs = weight.shape
        self._few = few_rows_product(weight.dtype) if self.inputs % RUN == 0 else None

    @property
    def form(self) -> str:
        if self._few is None:
            return f"plain, float32 above {FEW_ROWS} rows"
        return f"widened, in C to {IN_C_ROWS} rows"

    @property
    def function(self) -> int | None:
        """Where the function for few rows lies, for others in C to call, if there is one."""
        return None if self._few is None else native.address_of(self._few)

    @property
    def addresses(self) -> tuple[int | None, ...]:
        """Of the weight, no scales, no zeros, and the bias: good as long as this lives."""
        return _addresses(self.weight, self.bias)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N] in the dtype of `x`."""
        rows = x.shape[0]
        if self._few is not None and 0 < rows <= IN_C_ROWS and x.dtype == self.dtype:
            return _product(self._few, x.contiguous(), self.weight, self.bias)
        if rows <= FEW_ROWS:
            return functional.linear(x, self.weight, self.bias)
        return widened_product(x, self.weight, self.bias)


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


def few_rows_product(dtype: torch.dtype) -> native.Function | None:
    """The compiled product of few rows; None where it cannot be had, is not wanted, or is wrong."""
    return None if native.compiler() is None else _native(dtype)


@cache
def _native(dtype: torch.dtype) -> native.Function | None:
    if dtype not in (torch.bfloat16, torch.float16):
        return None
    return native.tried(
        SOURCE, "widened_product", _ARGUMENTS, dtype, lambda found: _is_right(found, dtype)
    )


def _is_right(function: native.Function, dtype: torch.dtype) -> bool:
    """Rows and outputs that no tile divides, with a bias and without."""
    rows, inputs, outputs = 7, 160, 45
    x, weight = native.probe(rows, inputs, dtype=dtype), native.probe(outputs, inputs, dtype=dtype)
    bias, true = native.probe(outputs, dtype=dtype), x.double() @ weight.double().t()
    pairs = ((None, true), (bias, true + bias.double()))
    return all(native.agrees(_product(function, x, weight, b), y) for b, y in pairs)


def _product(function: native.Function, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    rows, inputs = x.shape
    outputs = weight.shape[0]
    y = torch.empty(rows, outputs, dtype=x.dtype)
    scratch = torch.empty(rows * inputs)
    function(
        x.data_ptr(),
        *_addresses(weight, bias),
        y.data_ptr(),
        scratch.data_ptr(),
        rows,
        outputs,
        inputs,
        1,
        torch.get_num_threads(),
    )
    return y


def _addresses(weight: Tensor, bias: Tensor | None) -> tuple[int | None, ...]:
    """Of the weight, no scales, no zeros, and the bias."""
    return weight.data_ptr(), None, None, native.data_of(bias)
