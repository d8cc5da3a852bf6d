"""Rotary position embedding: one loop in C for a few rows, three operator calls beyond.

The sines and cosines of a step's positions are the same in every layer: they are made once a step,
in float32 (in bfloat16 a position past 256 is no longer exact, and greedy answers change).
With r = roll(x, D/2) the half-split rotation is

    [x1 cos - x2 sin, x2 cos + x1 sin]  =  x · [cos, cos] + r · [-sin, sin].

One row of 12 heads: 8.5 µs against 12 for the form that negates and concatenates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native

SOURCE = Path(__file__).with_name("rotation.c")

PAIRS = 16
"""Half of a head must be a multiple of so many numbers for the loop in C: a vector's."""


def form(width: int, dtype: torch.dtype) -> str:
    """What turns heads of `width` numbers in a run of `dtype`."""
    return "roll float32" + f", in C to {native.FEW_ROWS} rows" * is_native(width, dtype)


def is_native(width: int, dtype: torch.dtype) -> bool:
    """Whether few rows of such heads run in C."""
    return width % (2 * PAIRS) == 0 and _native(dtype) is not None


@dataclass(frozen=True)
class Rotation:
    """`cosine` [T, 1, D] and `signed_sine` [T, 1, D] = [-sin, sin], float32."""

    cosine: Tensor
    signed_sine: Tensor

    @staticmethod
    def at(positions: Tensor, inverse_frequencies: Tensor) -> Rotation:
        """The rotation of each of `positions` [T]; `inverse_frequencies` [D/2] float32."""
        angle = positions.to(torch.float32)[:, None, None] * inverse_frequencies  # [T, 1, D/2]
        cosine, sine = angle.cos(), angle.sin()
        return Rotation(torch.cat((cosine, cosine), -1), torch.cat((-sine, sine), -1))

    def __call__(self, x: Tensor) -> Tensor:
        """[T, heads, D] -> [T, heads, D] in the dtype of `x`, turned in float32."""
        rows, heads, width = x.shape
        if rows <= native.FEW_ROWS and width % (2 * PAIRS) == 0 and x.device.type == "cpu":
            function = _native(x.dtype)
            row, head, number = x.stride()
            if function is not None and (head, number) == (width, 1):
                y = torch.empty(rows, heads, width, dtype=x.dtype)
                function(
                    x.data_ptr(),
                    self.cosine.data_ptr(),
                    self.signed_sine.data_ptr(),
                    y.data_ptr(),
                    rows,
                    heads,
                    width,
                    row,
                )
                return y
        turned = x * self.cosine
        turned.addcmul_(torch.roll(x, x.shape[-1] // 2, -1), self.signed_sine)
        return turned.to(x.dtype)


@cache
def _native(dtype: torch.dtype) -> native.Function | None:
    """The function in C, where its result is right."""

    def right(function: native.Function) -> bool:
        x = native.probe(2, 4, 64, dtype=dtype)
        half = native.probe(2, 1, 32, dtype=torch.float32)
        cosine, sine = (
            torch.cat((half.cos(), half.cos()), -1),
            torch.cat((-half.sin(), half.sin()), -1),
        )
        y = torch.empty(2, 3, 64, dtype=dtype)
        function(
            x.data_ptr(), cosine.data_ptr(), sine.data_ptr(), y.data_ptr(), 2, 3, 64, x.stride(0)
        )
        first, second = x[:, :3].to(torch.float32).chunk(2, dim=-1)
        true = (first * half.cos() - second * half.sin(), second * half.cos() + first * half.sin())
        return native.agrees(y, torch.cat(true, -1))

    return native.tried(SOURCE, "rotate", "ppppllll", dtype, right)
