"""Decoding and product in one loop, for a few rows: `fused.c`, compiled for this processor.

One library for each width and type of numbers, about a second of one core each. Where there is no
compiler, or its product is wrong, there is no fused product, and forms say "plain".

Two Zen 3 cores (AVX2, no AVX-512), torch 2.13, bfloat16, weights from memory, groups of 64 at 4
bits and 32 below, microseconds; torch's own products of 4 and 8 bits (`int4_group`, `int8`) beside:

    rows, matrix        4 bits  torch's  3 bits  2 bits  8 bits  torch's
    1   960 x 576           31       54      29      31      37       74
    1   3072 x 576          78      151      97      90     129      264
    1   576 x 1536          63      109      46      49      74       78
    1   49152 x 576        918     2257    1025    1519    2074     3949
    4   3072 x 576         275      291     275     235     285      318
    16  3072 x 576        1323      772    1007     870    1182

torch.compile was tried for the same loop: 333 for 3072 x 576 at 4 bits, 517 at 3, and three to nine
seconds to make it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native
from kernels.linear import bitstream
from kernels.linear.bitstream import RUN

SOURCE = Path(__file__).with_name("fused.c")

_Address = int | None


@dataclass(frozen=True)
class FusedProduct:
    """The compiled product for one width, in runs of `dtype`; `seconds` it took to make."""

    bits: int
    dtype: torch.dtype
    seconds: float
    function: native.Function

    def takes(self, inputs: int, groups: int) -> bool:
        """Whether rows of `inputs` weights in `groups` groups come in whole runs."""
        return inputs % (groups * RUN) == 0

    def of(
        self, words: Tensor, scale: Tensor, zero: Tensor | None, bias: Tensor | None
    ) -> BoundProduct:
        """The product by one weight: `words` [K / 32, bits, N], `scale` and `zero` [G, N], `bias`
        [N], the numbers in `dtype`."""
        return BoundProduct(
            self.function,
            self.dtype,
            words.shape[2],
            words.shape[0] * RUN,
            scale.shape[0],
            (words.data_ptr(), scale.data_ptr(), _address(zero), _address(bias)),
            (words, scale, zero, bias),
        )


@dataclass(frozen=True)
class BoundProduct:
    """y = x Wᵀ + b by one weight, whose tensors it keeps alive: their addresses are taken once."""

    function: native.Function
    dtype: torch.dtype
    outputs: int
    inputs: int
    groups: int
    addresses: tuple[_Address, _Address, _Address, _Address]
    tensors: tuple[Tensor | None, ...]

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N] in the dtype of the weight's numbers. Sums are float32."""
        if x.dtype != self.dtype or not x.is_contiguous():
            return self(x.to(self.dtype).contiguous()).to(x.dtype)
        rows = x.shape[0]
        y = torch.empty(rows, self.outputs, dtype=self.dtype)
        scratch = torch.empty(rows * (self.inputs + self.inputs // RUN), dtype=torch.float32)
        self.function(
            x.data_ptr(),
            *self.addresses,
            y.data_ptr(),
            scratch.data_ptr(),
            rows,
            self.outputs,
            self.inputs,
            self.groups,
            torch.get_num_threads(),
        )
        return y


def fused_product(bits: int, dtype: torch.dtype) -> FusedProduct | None:
    """The compiled product for codes of `bits` in runs of `dtype`; made once a process.

    None where it cannot be compiled, or is not wanted, or comes out wrong.
    """
    return None if native.compiler() is None else _made(bits, dtype)


@cache
def _made(bits: int, dtype: torch.dtype) -> FusedProduct | None:
    began = time.perf_counter()

    def right(function: native.Function) -> bool:
        product = FusedProduct(bits, dtype, 0.0, function)
        return all(_is_right(product, *probe) for probe in _PROBES)

    function = native.tried(SOURCE, "low_bit_product", "ppppppplllli", dtype, right, BITS=bits)
    if function is None:
        return None
    return FusedProduct(bits, dtype, time.perf_counter() - began, function)


_PROBES = ((256, 4, 80, 1), (192, 1, 177, 7), (96, 3, 16, 2), (64, 1, 1_100, 4))
"""K, groups, N and rows of the products a compiled function is tried on."""


def _address(tensor: Tensor | None) -> _Address:
    return None if tensor is None else tensor.data_ptr()


def _is_right(product: FusedProduct, inputs: int, groups: int, outputs: int, rows: int) -> bool:
    """Whether a random matrix's product equals float64's, with zeros and bias and without."""
    bits = product.bits
    generator = torch.Generator().manual_seed(bits)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(product.dtype)

    shape = (outputs, inputs)
    codes = torch.randint(0, 1 << bits, shape, dtype=torch.uint8, generator=generator)
    words = bitstream.pack(codes, bits).words
    x, bias = draw(rows, inputs), draw(outputs)
    scale, zero = draw(groups, outputs), draw(groups, outputs)
    bare = codes.t().to(torch.float64).sub_(1 << (bits - 1)).view(groups, -1, outputs)
    bare = bare * scale.to(torch.float64)[:, None]
    whole = bare + zero.to(torch.float64)[:, None]
    wide = x.to(torch.float64)
    pairs = (
        (product.of(words, scale, None, None)(x), wide @ bare.view(inputs, outputs)),
        (product.of(words, scale, zero, bias)(x), wide @ whole.view(inputs, outputs) + bias),
    )
    return all(native.agrees(y, true) for y, true in pairs)
