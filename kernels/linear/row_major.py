"""A dense weight as it lies, row after row: a few rows multiply by it in C, more in torch.

Where a processor has no product in 16 bits, torch's widens every number as often as it meets it.
The loop of `row_major.c` reads a weight once, in order, whatever the rows. 3072 x 576, weights from
memory, two Zen 3 cores (AVX2) that share one core's arithmetic, torch 2.13, ms:

    rows                   1      2      4      8     16     32     64    128
    torch's bfloat16    0.35   0.61   1.14   1.88   3.81   7.34   14.7   28.8
    widened by pieces   0.84   1.07   1.16   1.43   1.73   2.28   3.39   5.28
    in C, bfloat16      0.35   0.37   0.34   0.44   0.74   1.38   2.84   5.39
    torch's float32     0.86   1.51   1.45   1.24   1.51   1.79   2.62   3.90
    laid out by oneDNN  0.71   0.74   0.66   0.83   1.00   1.33   2.14   3.25
    in C, float32       0.46   0.47   0.48   0.62   0.95   1.61   3.02
    head, by oneDNN      9.5     10    8.2    8.9     13     17     30     52
    head, in C           6.8    7.3    6.6    8.3     14     20     55

In float32 a decode step would be the faster for it too, by nearly two, and a prefill the slower by
a twelfth, since torch's product for more rows wants the weight laid out; the loop is not taken.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native
from kernels.linear.bitstream import RUN

SOURCE = Path(__file__).with_name("row_major.c")

_ARGUMENTS = "ppppppplllli"

IN_C_ROWS = {torch.float32: 32, torch.bfloat16: 64, torch.float16: 64}
"""Up to so many rows the loop in C runs: beyond, torch's product is the faster."""

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""(x [T, K], weight [N, K], bias [N] or None) -> [T, N]."""


def takes(inputs: int) -> bool:
    """Whether rows of so many numbers come in whole registers, however wide these are."""
    return inputs % RUN == 0


class RowMajorLinear:
    """y = x Wᵀ + b; `weight` [N, K] stays readable. `many` multiplies by more rows than the loop.

    Raises:
        ValueError: rows that the loop does not take.
    """

    bits, activations, groups = 16, 16, 1

    def __init__(
        self, few: native.Function, many: Product, weight: Tensor, bias: Tensor | None = None
    ) -> None:
        self.outputs, self.inputs = weight.shape
        if not takes(self.inputs):
            raise ValueError(f"rows of {self.inputs} numbers are no whole runs of {RUN}")
        self.weight = weight
        self.bias = bias
        self.dtype = weight.dtype
        self._few, self._many = few, many
        self._rows = IN_C_ROWS[weight.dtype]

    @property
    def form(self) -> str:
        return f"row-major in C to {self._rows} rows"

    @property
    def function(self) -> int | None:
        """Where the loop lies, for others in C to call."""
        return native.address_of(self._few)

    @property
    def addresses(self) -> tuple[int | None, ...]:
        """Of the weight, no scales, no zeros, and the bias: good as long as this lives."""
        return _addresses(self.weight, self.bias)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N] in the dtype of `x`."""
        if 0 < x.shape[0] <= self._rows and x.dtype == self.dtype:
            return _product(self._few, x.contiguous(), self.weight, self.bias)
        return self._many(x, self.weight, self.bias)


def few_rows_product(dtype: torch.dtype) -> native.Function | None:
    """The loop in C for numbers of `dtype`; None where it cannot be had, is not wanted, or is
    wrong."""
    return None if native.compiler() is None else _native(dtype)


@cache
def _native(dtype: torch.dtype) -> native.Function | None:
    return native.tried(
        SOURCE, "row_major_product", _ARGUMENTS, dtype, lambda found: _is_right(found, dtype)
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
