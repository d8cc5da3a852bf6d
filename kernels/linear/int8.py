"""int8 weights with a scale a row: weight-only, or with activations in 8 bits as well.

    w[n, k] = scale[n] · (q[n, k] - 128)

One copy of the codes serves products, look-ups of rows and the dense form. `form` ends with the
library whose kernel multiplies: "onednn" (`int8_blocked`) or "torch" (`int8_plain`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import torch
from torch import Tensor

from kernels.linear.checks import refuse_no_rows
from kernels.linear.int8_blocked import BlockedInt8
from kernels.linear.int8_pieces import ZERO_POINT
from kernels.linear.int8_plain import RowMajorInt8

PIECES = {torch.float32: 3, torch.bfloat16: 2, torch.float16: 2}
"""Pieces of 8 bits that lose less of an activation than its dtype does."""

BLOCKED_CODES = 1 << 20
"""Matrices of at least so many codes are worth oneDNN's layout. One row on one Zen 4 core, oneDNN
against torch, µs: 576 x 576 108 | 60, 576 x 1536 131 | 109, 3072 x 576 186 | 239, 49152 x 576
2108 | 3673."""


class Int8Product(Protocol):
    """Codes int8 [N, K] laid out for a kernel."""

    @property
    def name(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    def __call__(self, x: Tensor, scale: Tensor) -> Tensor: ...

    def codes(self) -> Tensor: ...

    def code_rows(self, ids: Tensor) -> Tensor: ...


class _Int8Linear(ABC):
    """y = x Wᵀ + b; the kind says how many bytes an activation is worth."""

    kind: str

    def __init__(self, codes: Tensor, scale: Tensor, bias: Tensor | None = None) -> None:
        """`codes` uint8 [N, K], `scale` [N, 1] in the run's dtype, `bias` [N]."""
        signed = (codes ^ ZERO_POINT).view(torch.int8)
        self.scale = scale.reshape(-1).contiguous()  # [N]
        self.product = _lay_out(signed, self._pieces())
        self.bias = bias

    @abstractmethod
    def _pieces(self) -> int: ...

    @property
    def form(self) -> str:
        return f"{self.kind} {self.product.name}"

    @property
    def nbytes(self) -> int:
        """Codes (with oneDNN's sum of each row), scales, bias."""
        bias = 0 if self.bias is None else self.bias.nbytes
        return self.product.nbytes + self.scale.nbytes + bias

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N] in the dtype of `x`."""
        refuse_no_rows(x)
        y = self.product(x, self.scale)
        if self.bias is not None:
            y += self.bias
        return y.to(x.dtype)

    def dense(self) -> Tensor:
        """[N, K] in the run's dtype, each weight rounded once."""
        return self.product.codes().to(self.scale.dtype).mul_(self.scale[:, None])

    def rows(self, ids: Tensor) -> Tensor:
        """Rows `ids` [T] of the dequantised matrix: [T, K]."""
        return self.product.code_rows(ids).to(self.scale.dtype).mul_(self.scale[ids, None])


class Int8RowLinear(_Int8Linear):
    """Weight-only: activations keep their precision."""

    kind = "int8-row"

    def _pieces(self) -> int:
        return PIECES[self.scale.dtype]


class Int8DynamicLinear(_Int8Linear):
    """W8A8: each token is quantised to 8 bits by its largest value as it comes."""

    kind = "int8-dynamic"

    def _pieces(self) -> int:
        return 1


def _lay_out(codes: Tensor, pieces: int) -> Int8Product:
    if codes.numel() >= BLOCKED_CODES:
        try:
            return BlockedInt8(codes, pieces)
        except RuntimeError:  # not here, or not this shape
            pass
    return RowMajorInt8(codes, pieces)
