"""int8 weights in row-major order, multiplied by torch's own int8 products.

For small matrices, where getting activations into bytes costs as much as oneDNN's layout
(`int8_blocked`) saves, and for machines and shapes that layout does not serve. Few rows go through
torch's `_weight_int8pack_mm`, which needs no preparation and whose time grows with every row; more
go through `_int_mm`, in bytes.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from kernels.linear.int8_pieces import ZERO_POINT, Pieces, rounded

WEIGHT_ONLY_ROWS = 8
"""Up to so many rows the weight-only product is the faster, or as fast (576 x 576 on one Zen 4
core: 106 µs against 110; at 16 rows 173 against 140)."""


WEIGHT_ONLY_INPUTS = 16
"""What must divide K for it: torch 2.13's bfloat16 kernel reads past a row of any other length, and
does not say so."""


class RowMajorInt8:
    """Codes int8 [N, K], multiplied by activations whole or in `pieces` bytes each.

    One piece rounds activations to 8 bits; more lose nothing, and are a matter of speed.
    """

    name = "torch"

    def __init__(self, codes: Tensor, pieces: int) -> None:
        self._codes = codes.contiguous()
        self._pieces = Pieces(pieces)
        self._rounds = pieces == 1

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes

    def __call__(self, x: Tensor, scale: Tensor) -> Tensor:
        """`x` [T, K] and `scale` [N], of one dtype -> [T, N] in it or in float32."""
        serves = self._codes.shape[1] % WEIGHT_ONLY_INPUTS == 0
        few = serves and not self._rounds and x.shape[0] <= WEIGHT_ONLY_ROWS
        if int_mm_is_exact() and not few:
            return self._by_bytes(x, scale)
        whole = rounded(x) if self._rounds else x.contiguous()
        if not serves:
            return functional.linear(whole, self._codes.to(x.dtype)).mul_(scale)
        return torch._weight_int8pack_mm(whole, self._codes, scale)

    def _by_bytes(self, x: Tensor, scale: Tensor) -> Tensor:
        rows, count = x.shape[0], self._pieces.count
        parts = torch.empty(rows * count, x.shape[1], dtype=torch.uint8)
        step = self._pieces.split(x, parts)
        signed = parts.bitwise_xor_(ZERO_POINT).view(torch.int8)
        products = torch._int_mm(signed, self._codes.t()).to(torch.float32)
        return self._pieces.join(products, step).mul_(scale)

    def codes(self) -> Tensor:
        """int8 [N, K]."""
        return self._codes

    def code_rows(self, ids: Tensor) -> Tensor:
        """int8 [T, K]: the codes of outputs `ids` [T]."""
        return self._codes[ids]


@cache
def int_mm_is_exact() -> bool:
    """Whether `_int_mm` runs, and holds the largest sums: processors that add pairs of products in
    16 bits cannot."""
    codes = torch.full((32, 64), -128, dtype=torch.int8)
    codes[1::2] = 127
    exact = [-128 * codes.to(torch.int32).sum(dim=1), 127 * codes.to(torch.int32).sum(dim=1)]
    rows = torch.full((2, 64), -128, dtype=torch.int8)
    rows[1] = 127
    try:
        found = torch._int_mm(rows, codes.t())
    except RuntimeError:
        return False
    return torch.equal(found, torch.stack(exact).to(torch.int32))
