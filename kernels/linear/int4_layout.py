"""Where torch's int4 pack puts each code: found by asking the packer.

The pack is private to torch and follows the vector width: with AVX-512, 64 outputs share 32 bytes
for every input, output i in the low half of byte i and output 32 + i in the high half; with AVX2,
32 outputs share 16; elsewhere, and in what is left over, neighbours share a byte. So blocks of B
outputs are [B / 2 bytes] for each of the K inputs, and which output a half byte belongs to is read
from the pack of a matrix that spells the outputs' own numbers. A pack of random codes then has to
come back as it went in, or the layout counts as unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

_WIDTHS = (64, 32, 16)
"""Outputs a block may hold, the widest tried first."""

_LOW_HALVES = 0x0F0F0F0F

_INPUTS = 32
"""Columns of the matrices the packer is asked with."""


@dataclass(frozen=True)
class Block:
    """`outputs` outputs in as many half bytes: `low[i]` and `high[i]` are those of byte i."""

    outputs: int
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def halves(self) -> bool:
        """Whether outputs stand in order once all low halves are followed by all high ones."""
        return self.low + self.high == tuple(range(self.outputs))


@dataclass(frozen=True)
class Layout:
    """Blocks of `main` from the first output on, and one of `tail` where outputs are left over."""

    main: Block
    tail: Block | None


def pack(codes: Tensor) -> Tensor:
    """uint8 [N, K] of 0..15 -> torch's pack, uint8 of N · K / 2 bytes."""
    wide = codes.to(torch.int32).contiguous()
    packed: Tensor = torch.ops.aten._convert_weight_to_int4pack_for_cpu(wide, 1)
    return packed


@cache
def layout_of(outputs: int) -> Layout | None:
    """The layout of matrices with `outputs` rows; None where it is none that this file knows."""
    for width in _WIDTHS:
        left = outputs % width
        if outputs < width:
            continue
        # one block and what is left over lie as they would behind more blocks
        asked = width + left
        main = _ask(asked, 0, width)
        tail = _ask(asked, width, left) if left else None
        if main is None or (left and tail is None):
            continue
        found = Layout(main, tail)
        if _comes_back(found, outputs if outputs <= 4096 else 4 * width + left):
            return found
    return None


@dataclass(frozen=True)
class Blocks:
    """Blocks of one kind in a pack: `pairs` uint8 [blocks, K, B / 2], a view of it."""

    pairs: Tensor
    block: Block

    @property
    def count(self) -> int:
        return self.pairs.shape[0]

    @property
    def outputs(self) -> int:
        """Outputs of one block."""
        return self.block.outputs

    def values(self, first: int, end: int, dtype: torch.dtype) -> Tensor:
        """q - 8 of blocks first..end, [blocks, K, B], outputs in order.

        Half bytes are taken four at a time, as 32-bit words: six times as fast as byte by byte.
        """
        pairs = self.pairs[first:end]
        words = pairs.view(torch.int32)
        values = torch.empty(*pairs.shape[:2], 2, pairs.shape[2], dtype=dtype)
        for half, codes in enumerate((words & _LOW_HALVES, (words >> 4) & _LOW_HALVES)):
            values[:, :, half].copy_(codes.view(torch.uint8).sub_(8).view(torch.int8))
        values = values.view(*pairs.shape[:2], self.outputs)
        return values if self.block.halves else values[:, :, self._places()]

    def code_rows(self, ids: Tensor) -> Tensor:
        """Codes of outputs `ids` [T], counted from the first block: uint8 [T, K]."""
        place = self._places()[ids % self.outputs]  # [T], low halves first
        half, byte = place // self.pairs.shape[2], place % self.pairs.shape[2]
        pairs = self.pairs[ids // self.outputs, :, byte]  # [T, K]
        return (pairs >> (4 * half[:, None]).to(torch.uint8)) & 15

    def _places(self) -> Tensor:
        """By output of a block, its place in all low halves followed by all high ones."""
        return torch.tensor(self.block.low + self.block.high).argsort()


def blocks(packed: Tensor, layout: Layout, outputs: int, inputs: int) -> list[Blocks]:
    """The main blocks of a pack [outputs, inputs], then the one left over, in order of outputs."""
    flat, main = packed.view(-1), layout.main
    cut = outputs // main.outputs * main.outputs * inputs // 2
    parts = [Blocks(flat[:cut].view(-1, inputs, main.outputs // 2), main)]
    if layout.tail is not None:
        parts.append(Blocks(flat[cut:].view(1, inputs, -1), layout.tail))
    return parts


def code_rows(packed: Tensor, layout: Layout, outputs: int, inputs: int, ids: Tensor) -> Tensor:
    """Codes 0..15 of outputs `ids` [T]: uint8 [T, K]."""
    main, *rest = blocks(packed, layout, outputs, inputs)
    if not rest:
        return main.code_rows(ids)
    cut = main.count * main.outputs
    behind = (ids >= cut)[:, None]
    return torch.where(
        behind, rest[0].code_rows((ids - cut).clamp_min(0)), main.code_rows(ids.clamp_max(cut - 1))
    )


def _ask(outputs: int, first: int, count: int) -> Block | None:
    """The order of `count` outputs from `first` on, in a pack of `outputs`."""
    numbers = torch.arange(outputs).clamp_max(255)[:, None].expand(-1, _INPUTS)
    start, end = first * _INPUTS // 2, (first + count) * _INPUTS // 2
    digits = [
        pack(digit.to(torch.uint8)).view(-1)[start:end] for digit in (numbers & 15, numbers >> 4)
    ]
    if any(digit.numel() != count * _INPUTS // 2 for digit in digits):
        return None
    ones, sixteens = (digit.view(_INPUTS, count // 2).to(torch.int64) for digit in digits)
    low = (ones & 15) + 16 * (sixteens & 15) - first
    high = (ones >> 4) + 16 * (sixteens >> 4) - first
    block = Block(count, tuple(low[0].tolist()), tuple(high[0].tolist()))
    complete = sorted(block.low + block.high) == list(range(count))
    return block if complete and bool((low == low[0]).all() and (high == high[0]).all()) else None


def _comes_back(layout: Layout, outputs: int) -> bool:
    generator = torch.Generator().manual_seed(outputs)
    codes = torch.randint(0, 16, (outputs, _INPUTS), dtype=torch.uint8, generator=generator)
    parts = blocks(pack(codes), layout, outputs, _INPUTS)
    whole = [part.values(0, part.count, torch.float32) for part in parts]
    found = torch.cat([values.transpose(1, 2).reshape(-1, _INPUTS) for values in whole])
    return torch.equal(found + 8, codes.to(torch.float32))
