"""A sheet of braille dots, two across and four down in each cell, with words laid over it.

Braille patterns are one cell wide in every terminal, also in those that draw the "ambiguous"
box and block glyphs two cells wide, so pictures stay aligned beside Chinese text. A plain
sheet draws the same picture with ASCII: one sign a cell, by which of its dots are set.

Coordinates: dots are (x, y) from the top left, cells are (column, row); x = 2 · column.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor, hypot

from rich.cells import cell_len

from game.widgets.ink import Ink, Line, Run

ACROSS = 2
DOWN = 4
_BRAILLE = 0x2800
# Bit of the dot at (x % 2, y % 4) in the braille block: columns of three, then the bottom row.
_BIT = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_ROWS = (0x09, 0x12, 0x24, 0xC0)
_LEFT, _RIGHT = 0x47, 0xB8


class Canvas:
    """`columns` x `rows` cells. Drawing outside the sheet is clipped, never an error.

    The last ink laid on a cell colours the whole cell; words hide the dots under them.
    """

    def __init__(self, columns: int, rows: int, plain: bool = False) -> None:
        self.columns = max(columns, 0)
        self.rows = max(rows, 0)
        self.plain = plain
        self._dots = [0] * (self.columns * self.rows)
        self._ink: list[Ink] = ["faint"] * (self.columns * self.rows)
        self._sign: list[str | None] = [None] * (self.columns * self.rows)

    @property
    def width(self) -> int:
        """Dots across."""
        return self.columns * ACROSS

    @property
    def height(self) -> int:
        """Dots down."""
        return self.rows * DOWN

    def dot(self, x: float, y: float, ink: Ink) -> None:
        across, down = floor(x), floor(y)
        if not (0 <= across < self.width and 0 <= down < self.height):
            return
        cell = (down // DOWN) * self.columns + across // ACROSS
        self._dots[cell] |= _BIT[across % ACROSS][down % DOWN]
        self._ink[cell] = ink

    def has_dot(self, x: int, y: int) -> bool:
        cell = (y // DOWN) * self.columns + x // ACROSS
        return bool(self._dots[cell] & _BIT[x % ACROSS][y % DOWN])

    def line(
        self, x0: float, y0: float, x1: float, y1: float, ink: Ink, thickness: float = 1.0
    ) -> None:
        """A straight stroke, both ends included, `thickness` dots wide."""
        length = hypot(x1 - x0, y1 - y0)
        steps = max(ceil(length * 1.5), 1)
        # Unit normal: a thick stroke is parallel strokes half a dot apart.
        normal = ((y0 - y1) / length, (x1 - x0) / length) if length else (0.0, 0.0)
        strands = max(ceil((thickness - 1) * 2), 0)
        for strand in range(strands + 1):
            offset = (strand / strands - 0.5) * (thickness - 1) if strands else 0.0
            shift_x, shift_y = normal[0] * offset, normal[1] * offset
            for step in range(steps + 1):
                along = step / steps
                self.dot(
                    x0 + (x1 - x0) * along + shift_x + 0.5,
                    y0 + (y1 - y0) * along + shift_y + 0.5,
                    ink,
                )

    def box(self, x0: float, y0: float, x1: float, y1: float, ink: Ink) -> None:
        """Every dot of [x0, x1) x [y0, y1)."""
        for y in range(max(floor(y0), 0), min(ceil(y1), self.height)):
            for x in range(max(floor(x0), 0), min(ceil(x1), self.width)):
                self.dot(x, y, ink)

    def disc(self, x: float, y: float, radius: float, ink: Ink) -> None:
        for down in range(floor(y - radius), ceil(y + radius) + 1):
            for across in range(floor(x - radius), ceil(x + radius) + 1):
                if hypot(across - x, down - y) <= radius:
                    self.dot(across, down, ink)

    def write(self, column: int, row: int, text: str, ink: Ink) -> None:
        """Words from `column` on; what does not fit on the sheet is left off, whole signs only."""
        if not 0 <= row < self.rows:
            return
        for sign in text:
            width = cell_len(sign)
            if width == 0:
                continue
            if column + width > self.columns:
                return
            if column >= 0:
                self._place(row * self.columns + column, sign, width, ink)
            column += width

    def _place(self, first: int, sign: str, width: int, ink: Ink) -> None:
        """A sign of `width` cells; a wide one that it half covers is blanked, not torn."""
        last = first + width
        if self._sign[first] == "":
            self._sign[first - 1] = " "
        if last % self.columns and self._sign[last] == "":
            self._sign[last] = " "
        for cell in range(first, last):
            self._sign[cell] = sign if cell == first else ""
            self._ink[cell] = ink

    def write_centred(self, column: int, row: int, text: str, ink: Ink) -> None:
        """Words about `column`, moved inward where the edge is near."""
        width = cell_len(text)
        start = min(max(column - width // 2, 0), max(self.columns - width, 0))
        self.write(start, row, text, ink)

    def lines(self) -> list[Line]:
        """Each row as runs of one ink; every row is exactly `columns` cells wide."""
        return [self._row(row) for row in range(self.rows)]

    def _row(self, row: int) -> Line:
        runs: list[Run] = []
        start = row * self.columns
        for cell in range(start, start + self.columns):
            sign = self._sign[cell]
            if sign is None:
                sign = _ascii(self._dots[cell]) if self.plain else _braille(self._dots[cell])
            ink = self._ink[cell]
            if runs and (runs[-1].ink == ink or sign == " "):
                runs[-1] = Run(runs[-1].text + sign, runs[-1].ink)
            else:
                runs.append(Run(sign, ink))
        return tuple(runs)


def _braille(dots: int) -> str:
    return chr(_BRAILLE + dots) if dots else " "


def _ascii(dots: int) -> str:
    """The ASCII sign nearest in shape: strokes keep their direction, masses their weight."""
    if not dots:
        return " "
    if any(dots & ~row == 0 for row in _ROWS):
        return "." if dots & ~_ROWS[3] == 0 else "-"
    if sum(dots & row == row for row in _ROWS) == 2 and dots.bit_count() == 4:
        return "="
    if any(dots & row == row and (dots & ~row).bit_count() <= 3 for row in (_ROWS[0], _ROWS[3])):
        return "+"
    count = dots.bit_count()
    if count >= 6:
        return "#"
    if count >= 3 and (dots & ~_LEFT == 0 or dots & ~_RIGHT == 0):
        return "|"
    falling, rising = _slant(dots)
    if count >= 3 and falling != rising:
        return "\\" if falling > rising else "/"
    return ":" if count <= 3 else "*"


def _slant(dots: int) -> tuple[int, int]:
    """Dots on each diagonal half of the cell: left-top with right-bottom, and the mirror."""
    left_top = (dots & 0x03).bit_count()
    left_bottom = (dots & 0x44).bit_count()
    right_top = (dots & 0x18).bit_count()
    right_bottom = (dots & 0xA0).bit_count()
    return left_top + right_bottom, left_bottom + right_top


def join(lines: Iterable[Line]) -> str:
    """The picture without its inks: what a terminal with no colour shows."""
    return "\n".join("".join(run.text for run in line) for line in lines)
