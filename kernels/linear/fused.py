"""Decoding and product in one loop, compiled for this processor by torch.compile.

For one row x and packed words (`bitstream`), with c the codes of a run of 32:

    sums[run, n] = Σ_j x[j] · (c[j, n] - 2^(b-1))           compiled: reads every word once
    y[n] = Σ_runs scale[g, n] · sums[run, n] + Σ_g zero[g, n] · Σ_{k in g} x[k]       plain torch

Sixteen outputs share a vector register. A code is not shifted down: it is masked where it lies in
its word, converted as that number, and meets an activation scaled by the power of two that makes up
for it; three instructions a code, and exact. Scales stay outside since 16-bit numbers in the loop
would halve its speed.

Sizes are arguments of what is compiled, so a process compiles once for each width it uses: five to
twelve seconds, and less once torch's own cache on disk knows it. One row on one Zen 4 core, µs, of
it outside the compiled loop some thirty:

                        960 x 576    3072 x 576    576 x 1536
    2 bits, compiled           98           201           133
            plain             640          1700           930
    3 bits, compiled          104           222           150
            plain             840          2310          1260
    bfloat16                   86           204           114
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from kernels.linear import bitstream
from kernels.linear.bitstream import RUN, Field, fields

COMPILERS = ("g++", "clang++", "c++")

SWITCH = "LATENCY_WALL_COMPILE"
"""Environment variable: "off" keeps to plain torch."""

_Function = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class FusedProduct:
    """The compiled product for one width; `seconds` it took to make."""

    bits: int
    seconds: float
    function: _Function

    def takes(self, inputs: int, groups: int) -> bool:
        """Whether rows of `inputs` weights in `groups` groups come in several whole runs."""
        return inputs > RUN and inputs % (groups * RUN) == 0

    def __call__(self, row: Tensor, words: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
        """`row` [K], `words` [K / 32, bits, N], `scale` and `zero` [G, N] -> float32 [N]."""
        groups, outputs = scale.shape
        x = row.to(torch.float32).view(-1, RUN)
        sums = self.function(x, _places(self.bits), words)  # [K / 32, N]
        if groups < sums.shape[0]:
            sums = sums.view(groups, -1, outputs).sum(dim=1)
        y = sums.mul_(scale).sum(dim=0)
        if zero is not None:
            y += x.view(groups, -1).sum(dim=1) @ zero.to(torch.float32)
        return y


def has_compiler() -> bool:
    """Whether a C++ compiler is on the path and wanted; nothing is compiled to find out."""
    return os.environ.get(SWITCH) != "off" and any(shutil.which(name) for name in COMPILERS)


@cache
def fused_product(bits: int) -> FusedProduct | None:
    """The compiled product; None where it cannot be compiled or comes out wrong.

    Made once a process. Compiling runs in this process alone and leaves no helper behind.
    """
    if not has_compiler():
        return None
    began = time.perf_counter()
    try:
        function = _compile(bits)
        right = all(_is_right(function, bits, *shape) for shape in _PROBES)
    except Exception:  # compilers fail in as many ways as there are compilers
        return None
    return FusedProduct(bits, time.perf_counter() - began, function) if right else None


_PROBES = ((256, 80), (192, 177))
"""K and N of the matrices the compiled product is tried on: the first fixes what is compiled,
the second must be served by the same."""


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


def _expression(bits: int) -> _Function:
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

    def product(x: Tensor, places: Tensor, words: Tensor) -> Tensor:
        apart = [words[:, index] for index in range(bits)]  # [runs, N] each
        worth = x * places
        sums = -float(middle) * x.sum(dim=1)[:, None]
        for index, field, shift in found:
            sums = sums + code(apart, field, shift).to(torch.float32) * worth[:, index, None]
        return sums

    return product


def _compile(bits: int) -> _Function:
    """Nothing is compiled before the first call. Guards are left out: they would cost as much as a
    small product, and `FusedProduct` alone calls, with tensors of one rank, layout and type."""
    options: dict[str, Any] = {
        "compile_threads": 1,
        "cpp.dynamic_threads": True,
        "cpp.enable_floating_point_contract_flag": "fast",
        # one loop: no part of the sum is set aside in memory
        "realize_opcount_threshold": 1_000_000,
        "realize_reads_threshold": 1_000_000,
        "realize_acc_reads_threshold": 1_000_000,
    }
    skip = getattr(torch.compiler, "skip_all_guards_unsafe", None)
    if skip is not None:
        options["guard_filter_fn"] = skip
    compiled: _Function = torch.compile(_expression(bits), fullgraph=True, options=options)
    return compiled


def _is_right(function: _Function, bits: int, inputs: int, outputs: int) -> bool:
    """Whether a random matrix's product equals float64's; its sizes are marked as arguments."""
    generator = torch.Generator().manual_seed(bits)
    shape = (outputs, inputs)
    codes = torch.randint(0, 1 << bits, shape, dtype=torch.uint8, generator=generator)
    x = torch.randn(inputs // RUN, RUN, generator=generator)
    words = bitstream.pack(codes, bits).words
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(words, (0, 2))
    sums = function(x, _places(bits), words)
    values = codes.t().to(torch.float64).sub_(1 << (bits - 1)).view(-1, RUN, outputs)
    truth = (values * x.to(torch.float64)[:, :, None]).sum(dim=1)
    return bool((sums - truth).abs().max() <= 1e-5 * truth.abs().max())
