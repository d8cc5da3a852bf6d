"""Which block serves which row of a decode step: the bookkeeping of paged attention."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache.block_tables import BlockTable


@dataclass(frozen=True, eq=False)
class BlockPairs:
    """The block tables of a decode step's rows, flattened: P pairs of a block and its row.

    Pairs go row by row and, within a row, in the order of positions: `blocks` [P] int64 are pool
    indices, `owners` [P] int64 the rows (0 .. rows - 1), `begins` [P] int64 the position of each
    block's first token in its sequence. `counts` holds the pairs of each row, at least one. A row
    with `lengths[r]` tokens sees place p of pair i where begins[i] + p < lengths[r] (and, under a
    sliding window W, begins[i] + p >= lengths[r] - W). Blocks that lie wholly behind the window, or
    hold no token yet, are in no pair.

    `exclusive` says that no block occurs twice.

    One value serves every step until a row enters a new block: what is derived from it alone can be
    kept with it.
    """

    rows: int
    blocks: Tensor
    owners: Tensor
    begins: Tensor
    counts: tuple[int, ...]
    exclusive: bool


class Pairing:
    """Makes the pairs of decode steps, and keeps the last for the step after.

    Tables are joined as arrays and become tensors without a copy: five thousand pairs take 50 µs,
    and a step whose rows stay in their blocks 5.
    """

    def __init__(self, block_size: int, blocks: int, device: str) -> None:
        self._size = block_size
        self._device = device
        self._begins = array("q", range(0, blocks * block_size, block_size))
        self._key: tuple[tuple[int, ...], ...] = ()
        self._pairs: BlockPairs | None = None

    def of(
        self,
        tables: Sequence[BlockTable],
        lengths: Sequence[int],
        window: int | None,
        unshared: bool,
    ) -> BlockPairs:
        """Pairs of a step whose rows see `lengths` tokens; `unshared` says no block is shared."""
        size = self._size
        first = [0 if window is None else max(0, length - window) // size for length in lengths]
        stop = [-(-length // size) for length in lengths]
        key = tuple(
            (table.serial, table.version, low, high)
            for table, low, high in zip(tables, first, stop, strict=True)
        )
        if self._pairs is None or self._key != key:
            self._key, self._pairs = key, self._made(tables, first, stop, unshared)
        return self._pairs

    def _made(
        self,
        tables: Sequence[BlockTable],
        first: Sequence[int],
        stop: Sequence[int],
        unshared: bool,
    ) -> BlockPairs:
        blocks, owners, begins = array("q"), array("q"), array("q")
        for row, (table, low, high) in enumerate(zip(tables, first, stop, strict=True)):
            blocks.extend(table.blocks[low:high])
            owners.extend(array("q", [row]) * (high - low))
            begins.extend(self._begins[low:high])
        return BlockPairs(
            rows=len(tables),
            blocks=on_device(blocks, self._device),
            owners=on_device(owners, self._device),
            begins=on_device(begins, self._device),
            counts=tuple(high - low for low, high in zip(first, stop, strict=True)),
            exclusive=unshared or len(set(blocks)) == len(blocks),
        )


def on_device(numbers: array[int], device: str) -> Tensor:
    """[n] int64 over the array's own memory, which must grow no more; a copy on another device."""
    return torch.frombuffer(numbers, dtype=torch.int64).to(device)
