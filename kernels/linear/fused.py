"""`fused.c`, compiled for this processor and tried.

One library for each width and type of numbers, a second or two of one core each. Where there is no
compiler, or a function is wrong, there are none, and forms say "plain".

Two Zen 3 cores (AVX2, no AVX-512), which share one core's arithmetic, bfloat16, weights from
memory, groups of 64, µs for the function alone; before it, the same loop over words that lay
[K / 32, bits, N], whose jumps no processor fetches ahead:

    rows, matrix      4 bits  before  3 bits  2 bits  8 bits
    1   960 x 576         26      45      22      29      38
    1   3072 x 576        69     113      62      87     140
    1   576 x 1536        35     106      41      44      67
    1   49152 x 576      944    1684     950    1356    1583
    4   3072 x 576       170     377     191     244     155
    8   3072 x 576       287     719     289     406     296
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native
from kernels.linear.compiled import CompiledLinear, Functions

SOURCE = Path(__file__).with_name("fused.c")

_SIGNATURES = {
    "low_bit_product": "ppppppplllli",
    "low_bit_dense": "pppplllli",
    "low_bit_rows": "ppppplll",
}

_PROBES = ((256, 4, 96, 1), (192, 1, 160, 7), (96, 3, 32, 2), (64, 1, 1_120, 4))
"""K, groups, N and rows of the weights that compiled functions are tried on."""


def fused_functions(bits: int, dtype: torch.dtype) -> Functions | None:
    """The compiled functions for codes of `bits` in runs of `dtype`; made once a process.

    None where they cannot be compiled, or are not wanted, or come out wrong.
    """
    return None if native.compiler() is None else _made(bits, dtype)


@cache
def _made(bits: int, dtype: torch.dtype) -> Functions | None:
    began = time.perf_counter()
    try:
        found = native.functions(SOURCE, _SIGNATURES, dtype, BITS=bits)
    except native.NativeError:
        return None
    made = Functions(bits, dtype, time.perf_counter() - began, *(found[n] for n in _SIGNATURES))
    return made if all(_are_right(made, *probe) for probe in _PROBES) else None


def _are_right(functions: Functions, inputs: int, groups: int, outputs: int, rows: int) -> bool:
    """Whether a random weight, its rows and its product equal float64's, with zeros and bias and
    without."""
    bits, dtype = functions.bits, functions.dtype
    generator = torch.Generator().manual_seed(bits)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    codes = torch.randint(0, 1 << bits, (outputs, inputs), dtype=torch.uint8, generator=generator)
    x, bias = draw(rows, inputs), draw(outputs)
    scale, zero = draw(outputs, groups), draw(outputs, groups)
    bare = codes.to(torch.float64).sub_(1 << (bits - 1)).view(outputs, groups, -1)
    bare = bare * scale.to(torch.float64)[:, :, None]
    whole = bare + zero.to(torch.float64)[:, :, None]
    ids = torch.tensor((0, outputs - 1, outputs // 2, 0))
    for zeros, biases, true in ((None, None, bare), (zero, bias, whole)):
        weight = CompiledLinear(functions, codes, scale, zeros, biases)
        true = true.view(outputs, inputs)
        y = x.to(torch.float64) @ true.t()
        if biases is not None:
            y += biases
        pairs = ((weight(x), y), (weight.dense(), true), (weight.rows(ids), true[ids]))
        if not all(native.agrees(*pair) for pair in pairs):
            return False
    return True
