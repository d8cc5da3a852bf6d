"""A vessel in section: every height is bytes, on one scale from the floor to above the rim.

The rim is the memory budget. On the floor lies the orb of the weights, as high as they are large;
the water stands where the account stands (weights, working memory, keys and values held). What is
set aside and empty is a fainter level above it; what was asked beyond is drawn in violet on top of
what stood there, over the rim. Without colour they are told apart by how close their dots lie.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, sqrt
from typing import Literal

from game.widgets.canvas import ACROSS, DOWN, Canvas
from game.widgets.cells import pad
from game.widgets.figures import size
from game.widgets.ink import Ink, Line

HEADROOM = 1.12
"""The picture reaches this far above whatever stands highest."""
MOST_OVER = 1.45
"""What rises further over the rim than this is cut at the top; its figure tells the rest."""
GUTTER = 13
"""Cells beside the vessel for the figures of its levels."""
_WALL = 2
_NOTCH = 4
_THIN_FROM = 12  # dots below the surface

Matter = Literal["air", "orb", "water", "deep", "empty", "spill"]
_PLAIN: dict[Matter, tuple[str, Ink]] = {
    "orb": ("O", "bronze"),
    "water": ("~", "water"),
    "deep": ("-", "deep"),
    "empty": (".", "deep"),
    "spill": ("%", "spill"),
}


@dataclass(frozen=True)
class Waters:
    """Bytes, all of them. `empty` is set aside for keys and values and holds none; `asked` is what
    was wanted on top of all that; `predicted` the whole by formula, a notch in the walls."""

    vessel: float
    weights: float
    held: float = 0.0
    working: float = 0.0
    empty: float = 0.0
    asked: float = 0.0
    predicted: float | None = None

    @property
    def level(self) -> float:
        """Where the water stands."""
        return self.weights + self.held + self.working

    @property
    def reserved(self) -> float:
        return self.level + self.empty

    @property
    def top(self) -> float:
        """The highest thing there is to show."""
        return self.reserved + self.asked

    @property
    def over(self) -> float:
        """Bytes beyond the rim; 0 while all of it fits."""
        return max(self.top - self.vessel, 0.0)


@dataclass(frozen=True)
class Section:
    """Where things stand on a sheet of `rows` lines and `columns` cells, in dots; y grows down."""

    waters: Waters
    columns: int
    rows: int

    @cached_property
    def floor(self) -> int:
        """The first dot row under the water: the last line of the sheet is the floor's."""
        return (self.rows - 1) * DOWN

    @cached_property
    def scale(self) -> float:
        """Dots a byte."""
        waters = self.waters
        highest = max(waters.vessel, min(waters.top, waters.vessel * MOST_OVER))
        return self.floor / (highest * HEADROOM) if highest > 0 else 0.0

    def y(self, level: float) -> int:
        """The topmost dot row of what reaches up to `level` bytes: the floor for nothing."""
        return max(self.floor - round(level * self.scale), 0)

    @cached_property
    def crest(self) -> int:
        """The topmost dot row of all there is; what passes the rim is never drawn as nothing."""
        top = self.y(self.waters.top)
        return max(min(top, self.y(self.waters.vessel) - 1), 0) if self.waters.over else top

    @cached_property
    def walls(self) -> tuple[int, int]:
        """The first dot column of each wall."""
        return 0, (self.columns - GUTTER) * 2 - _WALL

    @cached_property
    def orb(self) -> tuple[float, float, float]:
        """(x, y, radius) of a disc on the floor, as many dots high as its weights."""
        left, right = self.walls
        high = self.waters.weights * self.scale
        return (left + _WALL + right - 1) / 2, self.floor - high / 2 - 0.5, max(high - 1, 0) / 2

    def orb_at(self, y: float) -> tuple[float, float] | None:
        """Where the orb begins and ends on a dot row; None above it."""
        centre, middle, radius = self.orb
        reach = radius**2 - (y - middle) ** 2
        return (centre - sqrt(reach), centre + sqrt(reach)) if reach >= 0 else None

    def matter(self, y: float) -> Matter:
        """What fills the vessel at a height, but for the orb: beside it the water is no new bytes,
        only deep."""
        for matter, top in self._levels:
            if y >= top:
                return matter
        return "air"

    @cached_property
    def _levels(self) -> tuple[tuple[Matter, int], ...]:
        """Each matter and the dot row of its surface, the lowest first."""
        waters = self.waters
        surface = self.y(waters.level)
        return (
            ("deep", max(self.y(waters.weights), surface)),
            ("water", surface),
            ("empty", self.y(waters.reserved)),
            ("spill", self.crest),
        )


@dataclass(frozen=True)
class WaterWords:
    """Names of the rim (a word of four cells) and of what stands over it (GUTTER cells)."""

    rim: str
    over: str


def draw_water(
    waters: Waters, columns: int, rows: int, words: WaterWords, plain: bool = False
) -> list[Line]:
    """`rows` lines of `columns` cells; figures stand beside the wall at their heights."""
    canvas = Canvas(columns, rows, plain)
    section = Section(waters, columns, rows)
    if columns <= GUTTER + 6 or rows < 3 or section.scale <= 0:
        return canvas.lines()
    if plain:
        _fill_plain(canvas, section)
    else:
        _fill(canvas, section)
    _walls(canvas, section)
    _figures(canvas, section, words)
    return canvas.lines()


def _fill(canvas: Canvas, section: Section) -> None:
    """From the floor up: where two levels share a cell, the higher one gives it its ink.

    A cell has one ink, so one that the orb touches is the orb's alone.
    """
    left, right = section.walls
    surface, empty = section.y(section.waters.level), section.y(section.waters.reserved)
    touched: dict[int, tuple[int, int]] = {}
    for y in range(section.floor):
        ends = section.orb_at(y)
        if ends is not None:
            row = y // DOWN
            first, last = touched.get(row, (canvas.columns, -1))
            touched[row] = (
                min(first, floor(ends[0]) // ACROSS),
                max(last, ceil(ends[1]) // ACROSS),
            )
            canvas.box(ceil(ends[0]), y, floor(ends[1]) + 1, y + 1, "bronze")
    for y in range(section.floor - 1, section.crest - 1, -1):
        matter = section.matter(y)
        first, last = touched.get(y // DOWN, (canvas.columns, -1))
        if matter == "empty" and y // DOWN == surface // DOWN:
            continue  # the surface keeps its ink
        ink = "wall" if y == surface and matter in ("water", "deep") else _INK_OF[matter]
        for x in _pattern(matter, left + _WALL, right, y, y - surface, y == empty):
            if not first <= x // ACROSS <= last:
                canvas.dot(x, y, ink)


_INK_OF: dict[Matter, Ink] = {
    "water": "water",
    "deep": "deep",
    "empty": "deep",
    "spill": "spill",
}


def _pattern(
    matter: Matter, left: int, right: int, y: int, depth: int, edge: bool
) -> Iterable[int]:
    """Which dots of a row are set. Surfaces and what is asked beyond are whole lines, water every
    other dot; it thins with depth, and what is set aside and empty is the thinnest."""
    if matter == "spill" or depth == 0:
        return range(left, right)
    if matter == "empty":
        return range(left, right, 2) if edge else range(left, right, 4) if y % 2 == 0 else ()
    if matter == "deep" and depth >= _THIN_FROM and y % 2:
        return ()
    return range(left + (left + y) % 2, right, 2)


def _fill_plain(canvas: Canvas, section: Section) -> None:
    """One sign a cell, by what its middle holds."""
    left, right = section.walls
    for row in range(section.floor // DOWN):
        y = row * DOWN + 1.5
        matter = section.matter(y)
        # What is asked over the rim has its line, however thin it is.
        if section.waters.over and row == section.crest // DOWN:
            matter = "spill"
        start, end = section.orb_at(y) or (1.0, 0.0)
        for column in range((left + _WALL) // ACROSS, right // ACROSS):
            here: Matter = "orb" if start <= column * ACROSS + 0.5 <= end else matter
            if here in _PLAIN:
                sign, ink = _PLAIN[here]
                canvas.write(column, row, sign, ink)


def _walls(canvas: Canvas, section: Section) -> None:
    left, right = section.walls
    waters = section.waters
    rim = section.y(waters.vessel)
    for x in (left, right):
        canvas.box(x, rim, x + _WALL, section.floor, "dim")
    canvas.box(left, section.floor, right + _WALL, section.floor + 2, "dim")
    if waters.predicted is not None and not canvas.plain:
        y = min(section.y(waters.predicted), section.floor - 1)
        for x in (left + _WALL, right - _NOTCH):
            canvas.box(x, y, x + _NOTCH, y + 1, "silver")


def _figures(canvas: Canvas, section: Section, words: WaterWords) -> None:
    """Each figure at its height where that line is free, else on the next one down."""
    waters = section.waters
    rim = section.y(waters.vessel) // DOWN
    marks: list[tuple[int, str, Ink]] = [(rim, f"{size(waters.vessel)} {words.rim}", "strong")]
    if waters.over:
        top = min(section.y(waters.top) // DOWN, rim - 1)
        marks.append((top, f"+{size(waters.over)}", "danger"))
        if rim > 1:  # beneath the figure where that has the topmost line
            marks.append((max(top - 1, 0), words.over, "danger"))
    elif waters.level > waters.weights:
        marks.append((section.y(waters.level) // DOWN, size(waters.level), "wall"))
    marks.append((section.y(waters.weights) // DOWN, size(waters.weights), "bronze"))
    taken: set[int] = set()
    for row, text, ink in marks:
        free = next((at for at in range(max(row, 0), canvas.rows) if at not in taken), None)
        if free is not None:
            taken.add(free)
            canvas.write(canvas.columns - GUTTER, free, pad(f" {text}", GUTTER), ink)
