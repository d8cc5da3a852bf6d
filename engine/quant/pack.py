"""Codes of 8, 4, 3 or 2 bits laid side by side in bytes, row by row.

Code k of a row fills bits k·b ... k·b + b - 1 of that row, counted from the lowest bit of its first
byte. Eight codes fill b whole bytes, so that is the unit of work, and what a row's last byte has
left over is zero: K codes take ceil(K·b / 8) bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from engine.weight_format import WIDTHS

UNIT = 8
"""Codes that fill a whole number of bytes at any width."""


def packed_width(columns: int, bits: int) -> int:
    """Bytes of a row of `columns` codes. Raises ValueError for an unknown width."""
    if bits not in WIDTHS:
        raise ValueError(f"no codes have {bits} bits; legal: {', '.join(map(str, WIDTHS))}")
    return -(-columns * bits // 8)


def pack_codes(codes: Tensor, bits: int) -> Tensor:
    """uint8 [N, K], every code below 2^bits -> uint8 [N, ceil(K · bits / 8)].

    Raises:
        ValueError: an unknown width, another type or shape, or a code that the width cannot hold.
    """
    if codes.dim() != 2 or codes.dtype != torch.uint8:
        raise ValueError(f"codes are uint8 [N, K], not {codes.dtype} {list(codes.shape)}")
    rows, columns = codes.shape
    width = packed_width(columns, bits)
    if bits == 8:
        return codes.clone()
    if codes.numel() and int(codes.max()) >> bits:
        raise ValueError(f"a code of {int(codes.max())} does not fit in {bits} bits")
    units = functional.pad(codes, (0, -columns % UNIT)).view(rows, -1, UNIT)
    word = torch.zeros(units.shape[:2], dtype=torch.int32)  # b·8 <= 32 bits
    for index in range(UNIT):
        word |= units[..., index].to(torch.int32) << bits * index
    parts = [(word >> 8 * index & 0xFF).to(torch.uint8) for index in range(bits)]
    return torch.stack(parts, dim=-1).view(rows, -1)[:, :width].contiguous()


def unpack_codes(packed: Tensor, bits: int, columns: int) -> Tensor:
    """What `pack_codes` was given: uint8 [N, ceil(columns · bits / 8)] -> uint8 [N, columns].

    Raises:
        ValueError: an unknown width, or a shape that does not belong to so many columns.
    """
    width = packed_width(columns, bits)
    if packed.dim() != 2 or packed.dtype != torch.uint8 or packed.shape[1] != width:
        raise ValueError(
            f"{columns} codes of {bits} bits are uint8 [N, {width}], not {packed.dtype} "
            f"{list(packed.shape)}"
        )
    if bits == 8:
        return packed.clone()
    rows = packed.shape[0]
    units = functional.pad(packed, (0, -width % bits)).view(rows, -1, bits)
    word = torch.zeros(units.shape[:2], dtype=torch.int32)
    for index in range(bits):
        word |= units[..., index].to(torch.int32) << 8 * index
    mask = (1 << bits) - 1
    parts = [(word >> bits * index & mask).to(torch.uint8) for index in range(UNIT)]
    return torch.stack(parts, dim=-1).view(rows, -1)[:, :columns].contiguous()
