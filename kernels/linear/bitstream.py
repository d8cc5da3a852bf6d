"""Codes of any width side by side: 32 of them fill as many 32-bit words as they have bits.

Code j of a row's run of 32 takes the bits from j · b on, lowest first, across the border of two
words where need be (only 3 bits need it). Words of one place are kept next to each other for all
outputs, [K / 32, b, N], so that a vector register takes sixteen outputs and each of them meets the
same activation. What is left of a row beyond whole runs fills bytes in the same order. A row of K
codes takes ⌈K · b / 8⌉ bytes in all.

(Words are little-endian, the only order torch's wheels are built for.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

RUN = 32
"""Codes that fill whole words together."""

WIDTHS = (8, 4, 3, 2)


@dataclass(frozen=True)
class Field:
    """Codes first..first + count of a run, whole in `word`; the first begins at bit `shift`.

    A code that crosses into the next word is a field of its own, with `crosses`.
    """

    first: int
    count: int
    word: int
    shift: int
    crosses: bool = False


@cache
def fields(bits: int) -> tuple[Field, ...]:
    """Where the codes of one run lie, in their order."""
    found: list[Field] = []
    code = 0
    while code < RUN:
        word, shift = divmod(code * bits, 32)
        whole = min((32 - shift) // bits, RUN - code)
        found.append(Field(code, max(whole, 1), word, shift, crosses=whole == 0))
        code += max(whole, 1)
    return tuple(found)


@dataclass(frozen=True)
class Packed:
    """Codes of a matrix [N, K]: `words` int32 [K // 32, bits, N], `tail` uint8 [B, N]."""

    words: Tensor
    tail: Tensor
    bits: int
    inputs: int

    @property
    def nbytes(self) -> int:
        return self.words.nbytes + self.tail.nbytes

    def decode(self, first: int, end: int, dtype: torch.dtype) -> Tensor:
        """Outputs first..end -> q - 2^(bits - 1) in `dtype`, [K, end - first]."""
        middle, mask = 1 << (self.bits - 1), (1 << self.bits) - 1
        words = self.words[:, :, first:end]
        runs, _, outputs = words.shape
        out = torch.empty(self.inputs, outputs, dtype=dtype)
        body = out[: runs * RUN].view(runs, RUN, outputs)
        for field in fields(self.bits):
            span = body[:, field.first : field.first + field.count]
            if field.crosses:
                low = (words[:, field.word] >> field.shift) & ((1 << (32 - field.shift)) - 1)
                codes = (low | (words[:, field.word + 1] << (32 - field.shift)))[:, None]
            else:
                shifts = torch.arange(field.count, dtype=torch.int32) * self.bits + field.shift
                codes = words[:, field.word, None] >> shifts[:, None]
            span.copy_(codes.bitwise_and_(mask).sub_(middle))
        if runs * RUN < self.inputs:
            left = self.inputs - runs * RUN
            out[runs * RUN :] = _open_bytes(self.tail[:, first:end], self.bits, left) - middle
        return out


def pack(codes: Tensor, bits: int) -> Packed:
    """uint8 [N, K] of 0..2^bits - 1 -> the packed form.

    Raises:
        ValueError: a width that is not packed, or a code it does not hold.
    """
    if bits not in WIDTHS:
        raise ValueError(f"codes are packed at {WIDTHS} bits, not {bits}")
    if codes.numel() and int(codes.max()) >> bits:
        raise ValueError(f"a code of {int(codes.max())} does not fit into {bits} bits")
    outputs, inputs = codes.shape
    runs = inputs // RUN
    columns = codes.t()  # [K, N]
    body = columns[: runs * RUN].reshape(runs, RUN, outputs)
    words = torch.zeros(runs, bits + 1, outputs, dtype=torch.int64)
    for code in range(RUN):
        word, shift = divmod(code * bits, 32)
        shifted = body[:, code].to(torch.int64) << shift
        words[:, word] |= shifted & 0xFFFFFFFF
        words[:, word + 1] |= shifted >> 32
    tail = _close_bytes(columns[runs * RUN :], bits)
    return Packed(words[:, :bits].to(torch.int32).contiguous(), tail, bits, inputs)


def _close_bytes(columns: Tensor, bits: int) -> Tensor:
    """Fewer than 32 codes of every output [L, N] -> uint8 [⌈L · bits / 8⌉, N]."""
    count, outputs = columns.shape
    size = -(-count * bits // 8)
    wide = torch.zeros(size + 1, outputs, dtype=torch.int32)
    for code in range(count):
        byte, shift = divmod(code * bits, 8)
        shifted = columns[code].to(torch.int32) << shift
        wide[byte] |= shifted & 0xFF
        wide[byte + 1] |= shifted >> 8
    return wide[:size].to(torch.uint8)


def _open_bytes(tail: Tensor, bits: int, count: int) -> Tensor:
    """uint8 [B, N] -> `count` codes of every output, int32 [count, N]."""
    wide = torch.nn.functional.pad(tail.to(torch.int32), (0, 0, 0, 1))
    place = torch.arange(count) * bits
    byte, shift = place // 8, (place % 8).to(torch.int32)[:, None]
    pairs = wide[byte] | (wide[byte + 1] << 8)
    return (pairs >> shift) & ((1 << bits) - 1)
