"""Activations as bytes: what an 8-bit product needs on its left side.

A token x of largest magnitude m becomes whole numbers v = round(x / step), step = m / (2^(8p-1) -
256^(p-1)), written in p pieces of 8 bits: v = Σ 256^i · (byte_i - 128). The product with int8
weights is linear in the pieces, so p products of bytes put together give the product of v. Two
pieces lose 2⁻¹⁶ of m, less than bfloat16's own rounding of any but the smallest activations; three
lose 2⁻²³, as float32 does: the weights alone count as quantised. One piece is W8A8's dynamic
quantisation (Dettmers et al., 2022, and Xiao et al., 2022, scale a token by its largest value too).

A decode step splits one row before every product, so each operation saved counts: 13 µs for 576
numbers in two pieces, where norms, rounding and conversion one by one took 24.
"""

from __future__ import annotations

import torch
from torch import Tensor

ZERO_POINT = 128
"""The byte that stands for nothing."""

Step = float | Tensor
"""What one unit of v is worth: a number where there is one token, [T, 1] float32 where more."""

_SMALLEST = 1e-30
"""Largest magnitude of a row of zeros: keeps v finite."""

_LIMIT = {1: 127.0, 2: 2.0**15 - 256, 3: 2.0**23 - 65_536}
_SHIFT = {1: 128.0, 2: 128.0 * 257, 3: 128.0 * 65_793}
"""By number of pieces: the largest |v|, and Σ 256^i · 128, which makes every byte positive."""

_WHOLE = 2.0**23
"""From here to twice this a float32 is a whole number, and its lowest bytes are that number's."""


class Pieces:
    """Splits rows into `count` pieces (1, 2 or 3), and puts products of pieces together again."""

    def __init__(self, count: int) -> None:
        if count not in _LIMIT:
            raise ValueError(f"a number goes into 1, 2 or 3 pieces of 8 bits, not {count}")
        self.count = count
        self._limit = _LIMIT[count]
        self._shift = torch.tensor([_SHIFT[count] + (_WHOLE if count < 3 else 0.0)])

    def split(self, x: Tensor, out: Tensor) -> Step:
        """`x` [T, K] into `out` uint8 [count · T, K], the piece of the smallest power first.

        Returns the step. For a row that holds NaN or infinity it is not finite, nor is then
        anything that is multiplied by it.
        """
        rows, columns = x.shape
        wide = x.to(torch.float32)
        step: Step
        if rows == 1:
            low, high = torch.aminmax(wide)
            largest = max(-low.item(), high.item())
            step = (_SMALLEST if largest <= _SMALLEST else largest) / self._limit
            whole = torch.add(self._shift, wide, alpha=1 / step)
        else:
            largest_of = wide.abs().amax(dim=-1, keepdim=True)
            step = largest_of.clamp_min_(_SMALLEST).div_(self._limit)
            whole = torch.addcdiv(self._shift, wide, step)
        if self.count == 3:  # one bit more than the low bits of a float32 hold
            whole = whole.to(torch.int32)
        parts = whole.view(torch.uint8).view(rows, columns, 4)[..., : self.count]
        out.view(self.count, rows, columns).copy_(parts.permute(2, 0, 1))
        return step

    def join(self, products: Tensor, step: Step) -> Tensor:
        """Products of the pieces float32 [count · T, N] -> [T, N] float32, in units of x."""
        total, *smaller = reversed(products.chunk(self.count))
        for product in smaller:
            total = torch.add(product, total, alpha=256.0)
        return total * step


def rounded(x: Tensor) -> Tensor:
    """`x` as one piece keeps it, in its own dtype: the activations of W8A8 before the product."""
    parts = torch.empty(x.shape, dtype=torch.uint8)
    step = Pieces(1).split(x, parts)
    return (parts.to(torch.float32).sub_(ZERO_POINT) * step).to(x.dtype)
