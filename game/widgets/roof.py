"""The roofline: what a machine can reach at each intensity, and where the measured phases stand.

Both axes are logarithmic. Left of the ridge a phase can go no faster than its bytes arrive
(rate = intensity x bandwidth); right of it no faster than the arithmetic (rate = peak).
Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from rich.cells import cell_len

from game.widgets.canvas import DOWN, Canvas
from game.widgets.figures import operations
from game.widgets.ink import Ink, Line
from game.widgets.log_scale import log_part

_MARGIN = 9


@dataclass(frozen=True)
class Roof:
    """One precision's ceilings: bytes/s and floating-point operations/s."""

    bandwidth: float
    peak: float

    @property
    def ridge(self) -> float:
        """The intensity (operations a byte) where both ceilings meet."""
        return self.peak / self.bandwidth

    def reach(self, intensity: float) -> float:
        return min(intensity * self.bandwidth, self.peak)


@dataclass(frozen=True)
class Point:
    """A phase of a build: `mark` is one ASCII sign, different for each, whatever its colour."""

    mark: str
    intensity: float
    rate: float
    ink: Ink


@dataclass(frozen=True)
class Frame:
    """The window: intensities and rates (low, high), and the sheet it is drawn on, in cells."""

    intensity: tuple[float, float]
    rate: tuple[float, float]
    columns: int
    rows: int

    def place(self, intensity: float, rate: float) -> tuple[float, float]:
        """(x, y) in dots of a point on the plot; y grows downward."""
        x = log_part(intensity, *self.intensity) * (self.columns * 2 - 1)
        y = (1 - log_part(rate, *self.rate)) * (self.rows * DOWN - 1)
        return x, y

    def cell(self, intensity: float, rate: float) -> tuple[int, int]:
        x, y = self.place(intensity, rate)
        return floor(x + 0.5) // 2, floor(y + 0.5) // DOWN


def frame_for(roofs: Sequence[Roof], points: Sequence[Point], columns: int, rows: int) -> Frame:
    """Whole decades that hold every ridge and every point."""
    intensities = [roof.ridge for roof in roofs] + [point.intensity for point in points]
    rates = [roof.peak for roof in roofs] + [point.rate for point in points]
    low = 10.0 ** floor(log10(min(intensities)))
    high = 10.0 ** (floor(log10(max(intensities) * 1.05)) + 1)
    low = min(low, 0.1 if low >= 1 else low)
    bottom = 10.0 ** floor(log10(min(*rates, *(roof.reach(low) for roof in roofs)) * 1.001))
    top = max(rates) * 2.2
    return Frame((low, high), (bottom, top), columns, rows)


@dataclass(frozen=True)
class RoofWords:
    """Axis names: "operations a byte", "operations a second", "bandwidth", "compute"."""

    intensity: str
    rate: str
    bandwidth: str
    compute: str


def draw_roof(
    roofs: Sequence[Roof],
    points: Sequence[Point],
    columns: int,
    rows: int,
    words: RoofWords,
    plain: bool = False,
) -> list[Line]:
    """`rows` lines of `columns` cells. The first roof is the one that matters; others are faint.

    Points are drawn in order and keep their cell; a mark whose cell is taken stands beside it.
    """
    canvas = Canvas(columns, rows, plain)
    frame = frame_for(roofs, points, columns - _MARGIN, rows - 3)
    for number, roof in reversed(list(enumerate(roofs))):
        ink: Ink = "bronze" if number == 0 else "faint"
        low, high = frame.intensity
        corners = [(low, roof.reach(low)), (roof.ridge, roof.peak), (high, roof.peak)]
        for start, end in zip(corners, corners[1:], strict=False):
            x0, y0 = frame.place(*start)
            x1, y1 = frame.place(*end)
            offset = _MARGIN * 2
            canvas.line(x0 + offset, y0 + DOWN, x1 + offset, y1 + DOWN, ink)
    _draw_axes(canvas, frame, words)
    _name_roof(canvas, frame, roofs[0], words)
    taken: set[tuple[int, int]] = set()
    for point in points:
        column, row = _free_cell(frame, point, taken)
        taken.add((column, row))
        canvas.write(column + _MARGIN, row + 1, point.mark, point.ink)
    return canvas.lines()


def _free_cell(frame: Frame, point: Point, taken: set[tuple[int, int]]) -> tuple[int, int]:
    """The point's own cell, or the nearest free one of its row, to the right first."""
    column, row = frame.cell(point.intensity, point.rate)
    near = sorted(range(frame.columns), key=lambda at: (abs(at - column), at < column))
    return next(((at, row) for at in near if (at, row) not in taken), (column, row))


def _draw_axes(canvas: Canvas, frame: Frame, words: RoofWords) -> None:
    left, bottom = _MARGIN * 2 - 1, (canvas.rows - 2) * DOWN
    canvas.line(left, DOWN, left, bottom, "faint")
    canvas.line(left, bottom, canvas.width - 1, bottom, "faint")
    canvas.write(0, 0, words.rate, "dim")
    low, high = frame.rate
    for power in range(floor(log10(low)), floor(log10(high)) + 1):
        _, y = frame.place(frame.intensity[0], 10.0**power)
        if low <= 10.0**power * 1.001 and 10.0**power <= high:
            row = floor(y + 0.5) // DOWN + 1
            canvas.write(0, row, f"{operations(10.0**power) + '/s':>7}", "faint")
    free = 0
    low, high = frame.intensity
    name = canvas.columns - cell_len(words.intensity) - 1
    for power in range(floor(log10(low)), floor(log10(high) + 0.001) + 1):
        x, _ = frame.place(10.0**power, frame.rate[0])
        column = min(floor(x + 0.5) // 2 + _MARGIN, canvas.columns - 1)
        text = f"{10.0**power:g}"
        canvas.line(column * 2, bottom, column * 2, bottom + 2, "faint")
        if column >= free and column + len(text) < name:
            canvas.write(column, canvas.rows - 1, text, "faint")
            free = column + len(text) + 1
    canvas.write(name + 1, canvas.rows - 1, words.intensity, "dim")


def _name_roof(canvas: Canvas, frame: Frame, roof: Roof, words: RoofWords) -> None:
    column, row = frame.cell(frame.intensity[1], roof.peak)
    canvas.write(column + _MARGIN - cell_len(words.compute), max(row, 0), words.compute, "bronze")
    middle = (frame.intensity[0] * roof.ridge) ** 0.5
    column, row = frame.cell(middle, roof.reach(middle))
    start = max(column + _MARGIN - cell_len(words.bandwidth) - 2, _MARGIN)
    canvas.write(start, max(row, 1), words.bandwidth, "bronze")
