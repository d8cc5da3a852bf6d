"""A cache as a field of blocks: each its own sign and ink by what it holds.

Where the sheet has fewer places than the pool has blocks, a place stands for several neighbours
and shows what most of them are; the counts in the legend are always those of single blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from rich.cells import cell_len

from engine.page_map import CELL_SIGNS, Cell, PageMap
from game.widgets.ink import Ink, Line, Run

CELLS: tuple[Cell, ...] = get_args(Cell)
OF_SIGN: Mapping[str, Cell] = {sign: cell for cell, sign in CELL_SIGNS.items()}
GLYPH: Mapping[Cell, tuple[str, Ink]] = {
    "full": ("⣶", "wall"),
    "tail": ("⣀", "wall"),
    "shared": ("⣒", "bronze"),
    "cached": ("⠶", "water"),
    "reserved": ("⠒", "danger"),
    "free": ("⠄", "faint"),
}
"""Fewer dots the less a block holds, two stripes where it has two owners."""
_UPPER: Mapping[Cell, str] = {
    "full": "⣶", "tail": " ", "shared": "⣒", "cached": "⣀", "reserved": "⣀", "free": " ",
}  # fmt: skip
_LOWER: Mapping[Cell, str] = {
    "full": "⣿", "tail": "⣤", "shared": "⣛", "cached": "⠛", "reserved": "⠉", "free": "⠁",
}  # fmt: skip
COPIED_FROM, COPIED_TO = "o", "*"
"""The two ends of a copy on write, while it is new."""


@dataclass(frozen=True)
class Layout:
    """`width` cells draw a place, `gap` cells part it from the next, it is `high` lines high;
    `each` blocks are in it.

    Every `group` of blocks (a slot) begins a line of its own.
    """

    places_a_line: int
    width: int
    gap: int
    high: int
    each: int
    group: int


_SHAPES = ((5, 1, 2), (4, 1, 2), (3, 1, 2), (3, 1, 1), (2, 1, 1), (1, 1, 1), (2, 0, 1), (1, 0, 1))
"""Width of a place, the gap after it and its height in lines, the roomiest first."""


def lay_out(blocks: int, columns: int, rows: int, group: int = 0) -> Layout:
    """The roomiest way to show every block on `rows` lines of `columns` cells.

    Slots of `group` blocks keep lines of their own while there is room for that; 0 has no slots.
    """
    blocks, rows, columns = max(blocks, 1), max(rows, 1), max(columns, 1)
    for size in dict.fromkeys((group or blocks, blocks)):
        for width, gap, high in _SHAPES:
            places = max((columns + gap) // (width + gap), 1)
            if -(-blocks // size) * -(-size // places) * high <= rows:
                return Layout(places, width, gap, high, 1, size)
    return Layout(columns, 1, 0, 1, -(-blocks // (columns * rows)), blocks)


def place_cell(signs: str) -> Cell:
    """What most of these blocks are; the fuller kind where two are as many."""
    counts = Counter(OF_SIGN[sign] for sign in signs)
    return max(CELLS, key=lambda cell: (counts[cell], -CELLS.index(cell)))


def draw_pages(
    pages: PageMap,
    columns: int,
    rows: int,
    fresh: Collection[tuple[int, int]] = (),
    plain: bool = False,
    group: int = 0,
) -> list[Line]:
    """At most `rows` lines; `fresh` copies (from, to) are marked at both ends.

    `group` is the blocks of a slot, where the layout has slots.
    """
    layout = lay_out(len(pages.cells), columns, rows, group)
    marked = {source // layout.each: COPIED_FROM for source, _ in fresh}
    marked |= {target // layout.each: COPIED_TO for _, target in fresh}
    lines: list[Line] = []
    for first in range(0, len(pages.cells), layout.group):
        last = min(first + layout.group, len(pages.cells))
        places = [
            (start // layout.each, pages.cells[start : min(start + layout.each, last)])
            for start in range(first, last, layout.each)
        ]
        for start in range(0, len(places), layout.places_a_line):
            part = places[start : start + layout.places_a_line]
            for line in range(layout.high):
                lines.append(_line(part, layout, line, marked, plain))
    return lines


def _line(
    places: Sequence[tuple[int, str]],
    layout: Layout,
    line: int,
    marked: Mapping[int, str],
    plain: bool,
) -> Line:
    runs: list[Run] = []
    for number, signs in places:
        cell = place_cell(signs)
        glyph, ink = _sign(cell, layout.high, line, plain), GLYPH[cell][1]
        if number in marked:
            glyph, ink = marked[number], "silver"
        text = glyph * layout.width + " " * layout.gap
        if runs and runs[-1].ink == ink:
            runs[-1] = Run(runs[-1].text + text, ink)
        else:
            runs.append(Run(text, ink))
    return tuple(runs)


def _sign(cell: Cell, high: int, line: int, plain: bool) -> str:
    if plain:
        return CELL_SIGNS[cell]
    if high == 1:
        return GLYPH[cell][0]
    return _LOWER[cell] if line else _UPPER[cell]


def draw_legend(
    pages: Collection[PageMap], words: Mapping[Cell, str], width: int, plain: bool = False
) -> list[Line]:
    """Each kind that is there, with its sign and its count in every map, wrapped to `width`."""
    lines: list[list[Run]] = [[]]
    used = 0
    for cell in CELLS:
        counts = [one.count(cell) for one in pages]
        if not any(counts):
            continue
        glyph, ink = (CELL_SIGNS[cell], GLYPH[cell][1]) if plain else GLYPH[cell]
        told = f" {words[cell]} {' | '.join(f'{count:,}' for count in counts)}"
        need = 1 + cell_len(told) + (3 if used else 0)
        if used and used + need > width:
            lines.append([])
            used, need = 0, need - 3
        lines[-1] += [Run(("   " if used else "") + glyph, ink), Run(told, "dim")]
        used += need
    return [tuple(line) for line in lines if line]
