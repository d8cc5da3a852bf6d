"""Decoding and product in one loop, compiled for this processor by torch.compile.

For one row x and packed words (`bitstream`), with c the codes of a run of 32 and g its group:

    sums[run, n] = Σ_j x[j] · (c[j, n] - 2^(b-1))                     reads every word once
    y[n] = Σ_runs scale[g, n] · sums[run, n] + Σ_g zero[g, n] · Σ_{k in g} x[k]

Sixteen outputs share a vector register. A code is not shifted down: it is masked where it lies in
its word, converted as that number, and meets an activation scaled by the power of two that makes
up for it; three instructions a code, and exact. The sums are written out, and scaled in a loop of
their own: 16-bit scales in the first would halve its speed.

Sizes are arguments of what is compiled, so a process compiles once for each width it uses, with or
without zeros: eight seconds of one core, less once torch's own cache on disk knows it. One row on
one Zen 4 core, µs:

                        960 x 576    3072 x 576    576 x 1536
    2 bits, compiled           81           177           106
            plain             640          1700           930
    bfloat16                   86           204           114
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from kernels.linear import bitstream
from kernels.linear.bitstream import RUN, Field, fields

COMPILERS = ("g++", "clang++", "c++")

SWITCH = "LATENCY_WALL_COMPILE"
"""Environment variable: "off" keeps to plain torch."""

_Function = Callable[..., tuple[Tensor, Tensor]]
"""(x [G, runs of a group, 32], places [32], words, scale [, zero]) -> (y [N], sums)."""


@dataclass(frozen=True)
class FusedProduct:
    """The compiled product for one width and dtype; `seconds` it took to make."""

    bits: int
    seconds: float
    function: _Function

    def takes(self, inputs: int, groups: int) -> bool:
        """Whether rows of `inputs` weights in `groups` groups come in whole runs."""
        return inputs % (groups * RUN) == 0

    def __call__(self, row: Tensor, words: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
        """`row` [K], `words` [K / 32, bits, N], `scale` and `zero` [G, N] -> float32 [N]."""
        x = row.to(torch.float32).view(scale.shape[0], -1, RUN)
        numbers = (scale,) if zero is None else (scale, zero)
        return self.function(x, _places(self.bits), words, *numbers)[0]


def has_compiler() -> bool:
    """Whether a C++ compiler is on the path and wanted; nothing is compiled to find out."""
    return os.environ.get(SWITCH) != "off" and any(shutil.which(name) for name in COMPILERS)


@cache
def fused_product(bits: int, symmetric: bool, dtype: torch.dtype) -> FusedProduct | None:
    """The compiled product for scales of `dtype`, and zeros unless `symmetric`.

    None where it cannot be compiled or comes out wrong. Made once a process; compiling runs in this
    process alone and leaves no helper behind.
    """
    if not has_compiler():
        return None
    began = time.perf_counter()
    try:
        product = FusedProduct(bits, 0.0, _compile(bits, symmetric))
        right = all(_is_right(product, symmetric, dtype, *shape) for shape in _PROBES)
    except Exception:  # compilers fail in as many ways as there are compilers
        return None
    return replace(product, seconds=time.perf_counter() - began) if right else None


_PROBES = ((256, 4, 80), (192, 1, 177), (96, 3, 16))
"""K, groups and N of the matrices the compiled product is tried on: the first fixes what is
compiled, the others must be served by the same."""


@cache
def _places(bits: int) -> Tensor:
    """float32 [32]: what one unit of a code's lowest bit is worth where the code lies in its word;
    1 for codes that are shifted down."""
    worth = torch.ones(RUN)
    for index, field, shift in _codes(bits):
        if not _shifts(field, shift, bits):
            worth[index] = 2.0**-shift
    return worth


def _codes(bits: int) -> list[tuple[int, Field, int]]:
    """Of each code of a run: its number, its field, the bit of the word it begins at."""
    return [
        (field.first + place, field, field.shift + place * bits)
        for field in fields(bits)
        for place in range(field.count)
    ]


def _shifts(field: Field, shift: int, bits: int) -> bool:
    """Whether a code must be shifted down: it crosses words, or holds the sign of its word."""
    return field.crosses or shift + bits == 32


def _expression(bits: int, symmetric: bool) -> _Function:
    mask, middle = (1 << bits) - 1, 1 << (bits - 1)
    found = _codes(bits)

    def code(words: list[Tensor], field: Field, shift: int) -> Tensor:
        """The code where it lies in its word, times 2^shift; or shifted down."""
        word = words[field.word]
        if not _shifts(field, shift, bits):
            return word & (mask << shift)
        if not field.crosses:
            return (word >> shift) & mask
        low = (word >> shift) & ((1 << (32 - shift)) - 1)
        return (low | (words[field.word + 1] << (32 - shift))) & mask

    def with_scales(
        x: Tensor, places: Tensor, words: Tensor, scale: Tensor
    ) -> tuple[Tensor, Tensor]:
        apart = [words[:, index] for index in range(bits)]  # [runs, N] each
        runs = x.flatten(0, 1)  # [runs, 32]
        worth = runs * places
        sums = -float(middle) * runs.sum(dim=1)[:, None]
        for index, field, shift in found:
            sums = sums + code(apart, field, shift).to(torch.float32) * worth[:, index, None]
        grouped = sums.view(x.shape[0], x.shape[1], words.shape[2])
        return (grouped * scale[:, None].to(torch.float32)).sum(dim=(0, 1)), sums

    def with_zeros(
        x: Tensor, places: Tensor, words: Tensor, scale: Tensor, zero: Tensor
    ) -> tuple[Tensor, Tensor]:
        y, sums = with_scales(x, places, words, scale)
        totals = x.sum(dim=(1, 2))[:, None]  # [G, 1]
        return y + (zero.to(torch.float32) * totals).sum(dim=0), sums

    return with_scales if symmetric else with_zeros


def _compile(bits: int, symmetric: bool) -> _Function:
    """Nothing is compiled before the first call. Guards are left out: they would cost as much as a
    small product, and `FusedProduct` alone calls, with tensors of one rank, layout and type."""
    options: dict[str, Any] = {
        "compile_threads": 1,
        "cpp.dynamic_threads": True,
        "cpp.enable_floating_point_contract_flag": "fast",
        # no part of a sum is set aside in memory before its end
        "realize_opcount_threshold": 1_000_000,
        "realize_reads_threshold": 1_000_000,
        "realize_acc_reads_threshold": 1_000_000,
    }
    skip = getattr(torch.compiler, "skip_all_guards_unsafe", None)
    if skip is not None:
        options["guard_filter_fn"] = skip
    # traced first, so that every width is a function of its own to the compiler's cache: closures
    # share their code, and without guards the first width would answer for all
    traced = torch.fx.symbolic_trace(_expression(bits, symmetric))
    compiled: _Function = torch.compile(traced.forward, fullgraph=True, options=options)
    return compiled


def _is_right(
    product: FusedProduct,
    symmetric: bool,
    dtype: torch.dtype,
    inputs: int,
    groups: int,
    outputs: int,
) -> bool:
    """Whether a random matrix's product equals float64's; its sizes are marked as arguments."""
    bits = product.bits
    generator = torch.Generator().manual_seed(bits)
    shape = (outputs, inputs)
    codes = torch.randint(0, 1 << bits, shape, dtype=torch.uint8, generator=generator)
    words = bitstream.pack(codes, bits).words
    x = torch.randn(groups, inputs // groups // RUN, RUN, generator=generator)
    numbers = [torch.rand(groups, outputs, generator=generator).to(dtype) for _ in range(2)]
    numbers = numbers[:1] if symmetric else numbers
    torch._dynamo.mark_dynamic(words, (0, 2))
    for tensor in (x, *numbers):
        torch._dynamo.mark_dynamic(tensor, (0, 1))
    y = product.function(x, _places(bits), words, *numbers)[0]
    weight = codes.t().to(torch.float64).sub_(1 << (bits - 1)).view(groups, -1, outputs)
    weight *= numbers[0][:, None]
    if not symmetric:
        weight += numbers[1][:, None]
    truth = x.to(torch.float64).view(-1) @ weight.view(inputs, outputs)
    return bool((y - truth).abs().max() <= 1e-5 * truth.abs().max())
