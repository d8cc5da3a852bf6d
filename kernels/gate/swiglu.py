"""SwiGLU: one loop in C for a few rows, where calls cost more than arithmetic; torch beyond."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from kernels import native
from kernels.gate.reference import swiglu as reference

SOURCE = Path(__file__).with_name("swiglu.c")


def swiglu(x: Tensor) -> Tensor:
    """silu(gate) · up for gate and up side by side: [T, 2 F] -> [T, F]. The result is rounded once
    in C, and after each factor in torch."""
    rows, width = x.shape[0], x.shape[1] // 2
    if rows <= native.FEW_ROWS and x.device.type == "cpu" and x.is_contiguous():
        function = _native(x.dtype)
        if function is not None:
            y = torch.empty(rows, width, dtype=x.dtype)
            function(x.data_ptr(), y.data_ptr(), rows, width)
            return y
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate).mul_(up)


def is_native(dtype: torch.dtype) -> bool:
    """Whether few rows run in C."""
    return _native(dtype) is not None


@cache
def _native(dtype: torch.dtype) -> native.Function | None:
    """The function, where its result is right."""

    def right(function: native.Function) -> bool:
        x = native.probe(3, 2 * 37, dtype=dtype) * 4
        y = torch.empty(3, 37, dtype=dtype)
        function(x.data_ptr(), y.data_ptr(), 3, 37)
        return native.agrees(y, reference(x))

    return native.tried(SOURCE, "swiglu", "ppll", dtype, right)
