"""What the cache holds, cell by cell, as it is drawn: one cell a block, in the pool's order.

Torch-free. A contiguous slot is shown in cells of the same size, so that both layouts can be laid
side by side.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Cell = Literal["full", "tail", "shared", "cached", "reserved", "free"]

CELL_SIGNS: dict[Cell, str] = {
    "full": "F",
    "tail": "t",
    "shared": "S",
    "cached": "c",
    "reserved": "r",
    "free": ".",
}
"""full: every slot holds a token of one request. tail: some slots do, the rest are waste. shared:
full, and in more than one request's table. cached: of no request, kept for the next that begins
alike. reserved: set aside for a request that has not come so far. free: anyone's."""


class PageMap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`cells` holds one of CELL_SIGNS a cell; a cell is `block_size` token slots.

    `held_tokens` are distinct tokens of running requests, `reserved_tokens` the slots set aside for
    them. `copied` lists the last (from, to) blocks copied on write, newest last, at most 8 of
    `copies` in all.
    """

    layout: Literal["contiguous", "paged"]
    block_size: int
    cells: str
    held_tokens: int
    reserved_tokens: int
    copies: int = 0
    copied: tuple[tuple[int, int], ...] = ()

    def count(self, cell: Cell) -> int:
        return self.cells.count(CELL_SIGNS[cell])

    @property
    def use(self) -> float:
        """Share of the slots set aside that hold a token, 0 to 1; 0 while nothing is set aside."""
        return self.held_tokens / self.reserved_tokens if self.reserved_tokens else 0.0
