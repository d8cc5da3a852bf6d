"""Weights of any width that stay packed, and are decoded for the product only.

    w[n, k] = scale[g, n] · (q[n, k] - 2^(b-1)) [+ zero[g, n]],  g = k // group

Plain torch decodes a piece of the matrix that fits a core's cache, multiplies by it and forgets it.
Where a C compiler exists, `compiled` takes the same weights, and not even a piece is written out.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kernels.linear import bitstream
from kernels.linear.checks import refuse_no_rows
from kernels.linear.int8_pieces import rounded
from kernels.linear.orientation import as_weight

_PIECE = 1 << 18
"""Weights decoded at a time."""


class LowBitLinear:
    """y = x Wᵀ + b on packed codes.

    `activations` 8 rounds each token to 8 bits by its largest value before the product, as W8A8
    does: the values, not the speed.
    """

    def __init__(
        self,
        codes: Tensor,
        scale: Tensor,
        zero: Tensor | None,
        bits: int,
        bias: Tensor | None = None,
        activations: int = 16,
    ) -> None:
        """`codes` uint8 [N, K], `scale` and `zero` [N, G] in the run's dtype, `bias` [N].

        Raises:
            ValueError: groups that do not divide a row, or a code wider than `bits`.
        """
        self.outputs, self.inputs = codes.shape
        self.groups = scale.shape[1]
        if self.inputs % self.groups:
            raise ValueError(f"{self.groups} groups do not divide rows of {self.inputs} weights")
        self.packed = bitstream.pack(codes, bits)
        self.scale = scale.t().contiguous()  # [G, N]
        self.zero = None if zero is None else zero.t().contiguous()
        self.bits = bits
        self.bias = bias
        self.activations = activations

    @property
    def form(self) -> str:
        return f"packed-{self.bits}bit plain" + ", int8 activations" * (self.activations == 8)

    @property
    def nbytes(self) -> int:
        """Codes, scales and zeros, bias."""
        numbers = (self.scale, self.zero, self.bias)
        return self.packed.nbytes + sum(n.nbytes for n in numbers if n is not None)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N] in the dtype of `x`."""
        refuse_no_rows(x)
        if self.activations == 8:
            x = rounded(x)
        y = torch.empty(x.shape[0], self.outputs, dtype=x.dtype)
        for first, end in self._pieces():
            y[:, first:end] = functional.linear(x, as_weight(self._decode(first, end)))
        if self.bias is not None:
            y += self.bias
        return y

    def dense(self) -> Tensor:
        """[N, K] in the run's dtype."""
        out = torch.empty(self.inputs, self.outputs, dtype=self.scale.dtype)
        for first, end in self._pieces():
            out[:, first:end] = self._decode(first, end)
        return as_weight(out)

    def rows(self, ids: Tensor) -> Tensor:
        """Rows `ids` [T] of the dequantised matrix: [T, K]."""
        chosen = bitstream.Packed(
            self.packed.words[:, :, ids], self.packed.tail[:, ids], self.bits, self.inputs
        )
        zero = None if self.zero is None else self.zero[:, ids]
        return self._scaled(chosen, 0, ids.shape[0], self.scale[:, ids], zero).t().contiguous()

    def _pieces(self) -> list[tuple[int, int]]:
        step = max(16, _PIECE // self.inputs // 16 * 16)
        starts = range(0, self.outputs, step)
        return [(first, min(first + step, self.outputs)) for first in starts]

    def _decode(self, first: int, end: int) -> Tensor:
        """Outputs first..end, dequantised: [K, end - first], each weight rounded once or twice."""
        zero = None if self.zero is None else self.zero[:, first:end]
        return self._scaled(self.packed, first, end, self.scale[:, first:end], zero)

    def _scaled(
        self, packed: bitstream.Packed, first: int, end: int, scale: Tensor, zero: Tensor | None
    ) -> Tensor:
        shape = (self.groups, self.inputs // self.groups, end - first)
        values = packed.decode(first, end, scale.dtype).view(shape)
        if zero is None:
            values.mul_(scale[:, None])
        else:
            torch.addcmul(zero[:, None], values, scale[:, None], out=values)
        return values.view(self.inputs, end - first)
