"""Speed-up (logarithmic, up) against draft length (logarithmic, to the right): curves by formula,
and every trial of the player's as a mark over them.

The formula is that of Leviathan et al. (2023), theorem 3.8: with r the chance that a drafted token
stands, k the length, c a drafted token's cost and v the verifying pass in steps of the model,

    speed-up = (1 - r^(k+1)) / ((1 - r) (k c + v))

where the paper has v = 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor

from rich.cells import cell_len

from engine.speculate.formula import speed_up
from game.rules.draft_costs import DraftCosts
from game.widgets.canvas import ACROSS, DOWN, Canvas
from game.widgets.figures import plain_number
from game.widgets.ink import Ink, Line
from game.widgets.log_scale import log_part
from game.widgets.trial_points import Mark, TrialPoint

GUTTER = 7
"""Cells left of the plot, for the figures of the speed-ups."""
LONGEST = 16
"""Lengths from 1 to here are always in view, and speed-ups likewise."""
SLOWEST, FASTEST = 0.5, 2.0
MARKS: Mapping[Mark, tuple[str, Ink]] = {
    "met": ("o", "wall"),
    "missed": ("x", "danger"),
    "open": ("?", "dim"),
}
_OUTERMOST = (0.02, 50.0)
"""Speed-ups beyond stand at the margin."""
_LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_GAINS = (1.0, 2.0, 0.5, 4.0, 0.25, 8.0, 0.1, 16.0, 0.05, 32.0)
"""Ticks in the order in which they get the room."""
_FEW_ROWS = 3
"""Of a plot that has no row for the name of its axis."""
_AIR = 1.5
"""Cells of the plot left of the shortest draft and right of the longest."""


@dataclass(frozen=True)
class Curve:
    """Speed-ups at lengths 1, 2, ...; `name` stands at its right end ("": none)."""

    gains: tuple[float, ...]
    name: str = ""


@dataclass(frozen=True)
class Speeds:
    """`points` oldest first; `goal` is the speed-up asked for, None where none is."""

    points: Sequence[TrialPoint]
    curves: Sequence[Curve]
    goal: float | None = None

    @property
    def longest(self) -> int:
        return max([LONGEST, *(point.length for point in self.points)])


@dataclass(frozen=True)
class SpeedWords:
    """Of the axes (short: they stand in the gutter), and of both lines."""

    gain: str
    length: str
    even: str
    goal: str


def supposed_curve(chance: float, cost: float, name: str, longest: int = LONGEST) -> Curve:
    """By formula alone: verifying costs a step, whatever the length."""
    return Curve(tuple(speed_up(chance, k, cost) for k in range(1, longest + 1)), name)


def measured_curve(chance: float, costs: DraftCosts, longest: int = LONGEST) -> Curve:
    """By formula with a trial's own chance and costs."""
    return Curve(tuple(costs.speed_up(chance, k) for k in range(1, longest + 1)))


@dataclass(frozen=True)
class Window:
    """Lengths 1 to `longest`, speed-ups from `low` (bottom) to `high`; in cells."""

    longest: int
    low: float
    high: float
    columns: int
    rows: int

    def place(self, length: float, gain: float) -> tuple[float, float]:
        """(x, y) in dots; what lies outside stands at the margin."""
        air = min(_AIR * ACROSS, self.columns * ACROSS / 4)
        across = air + log_part(length, 1, self.longest) * (self.columns * ACROSS - 1 - 2 * air)
        return across, (1 - log_part(gain, self.low, self.high)) * (self.rows * DOWN - 1)

    def cell(self, length: float, gain: float) -> tuple[int, int]:
        x, y = self.place(length, gain)
        return floor(x + 0.5) // ACROSS, floor(y + 0.5) // DOWN


def window_for(speeds: Speeds, columns: int, rows: int) -> Window:
    """Whatever is drawn is inside, but for what lies beyond the outermost."""
    gains = [point.speed_up for point in speeds.points]
    gains += [gain for curve in speeds.curves for gain in curve.gains]
    gains += [speeds.goal or 1.0, SLOWEST, FASTEST]
    least, most = _OUTERMOST
    return Window(
        longest=speeds.longest,
        low=max(min(gains), least) / 1.05,
        high=min(max(gains), most) * 1.05,
        columns=columns,
        rows=rows,
    )


def draw_speeds(
    speeds: Speeds, words: SpeedWords, columns: int, rows: int, plain: bool = False
) -> list[Line]:
    """`rows` lines of `columns` cells, the last the axis of lengths."""
    canvas = Canvas(columns, rows, plain)
    window = window_for(speeds, max(columns - GUTTER, 1), max(rows - 1, 1))
    _draw_curves(canvas, window, speeds.curves)
    marks = [_mark(window, point) for point in speeds.points]
    taken = list(marks)
    for curve in speeds.curves:
        _name_curve(canvas, window, curve, taken)
    _name_line(canvas, window, 1.0, words.even, "text", taken)
    goal = speeds.goal
    if goal is not None and window.cell(1, goal)[1] != window.cell(1, 1.0)[1]:
        _name_line(canvas, window, goal, words.goal, "wall", taken)
        _draw_line(canvas, window, goal, 3, 1, "wall")
    _draw_line(canvas, window, 1.0, 6, 3, "text")
    _draw_curves(canvas, window, speeds.curves)  # over the lines, whose cells they share
    for label in taken[len(marks) :]:
        canvas.write(label.column, label.row, label.text, label.ink)
    _draw_axes(canvas, window, words)
    for mark in marks[:-1]:
        canvas.write(mark.column + 1, mark.row, mark.text[1], mark.ink)
    for newest in marks[-1:]:
        canvas.write(newest.column, newest.row, newest.text, "silver")
    return canvas.lines()


def _draw_curves(canvas: Canvas, window: Window, curves: Sequence[Curve]) -> None:
    """Straight from length to length: between them there is no draft."""
    least, most = _OUTERMOST
    offset = GUTTER * ACROSS
    for curve in curves:
        for length, (here, there) in enumerate(pairwise(curve.gains[: window.longest]), 1):
            if not least <= min(here, there) <= max(here, there) <= most:
                continue
            x0, y0 = window.place(length, here)
            x1, y1 = window.place(length + 1, there)
            canvas.line(offset + x0, y0, offset + x1, y1, "bronze")


def _draw_line(
    canvas: Canvas, window: Window, gain: float, period: int, drawn: int, ink: Ink
) -> None:
    """A level line of which `drawn` dots in every `period` stand."""
    _, y = window.place(1, gain)
    for x in range(GUTTER * ACROSS, canvas.width):
        if x % period < drawn:
            canvas.dot(x, y + 0.5, ink)


@dataclass(frozen=True)
class _Label:
    """Text on the sheet, from a cell on."""

    column: int
    row: int
    text: str
    ink: Ink

    def meets(self, other: _Label) -> bool:
        if self.row != other.row:
            return False
        return self.column < other.column + cell_len(
            other.text
        ) and other.column < self.column + cell_len(self.text)


def _mark(window: Window, point: TrialPoint) -> _Label:
    """A trial's sign in parentheses, which the newest alone shows."""
    column, row = window.cell(point.length, point.speed_up)
    sign, ink = MARKS[point.mark]
    return _Label(column + GUTTER - 1, row, f"({sign})", ink)


def _name_curve(canvas: Canvas, window: Window, curve: Curve, taken: list[_Label]) -> None:
    """At its right end: above, below, or on it; not at all where another's name stands."""
    if not curve.name or not curve.gains:
        return
    length = min(len(curve.gains), window.longest)
    column, row = window.cell(length, curve.gains[length - 1])
    start = min(GUTTER + column + 1, canvas.columns) - cell_len(curve.name)
    places = [_Label(start, at, curve.name, "bronze") for at in (row - 1, row + 1, row)]
    free = [one for one in places if _is_free(canvas, window, one, taken)]
    on_it = [one for one in places[2:] if not any(one.meets(other) for other in taken)]
    taken += (free or on_it)[:1]


def _name_line(
    canvas: Canvas, window: Window, gain: float, word: str, ink: Ink, taken: list[_Label]
) -> None:
    """On the line, where no curve runs: at the left, at the right, in the middle, or nowhere."""
    text = f" {word} "
    row = window.cell(1, gain)[1]
    right = canvas.columns - cell_len(text) - 1
    starts = (GUTTER + 1, right, (GUTTER + right) // 2)
    places = (_Label(start, row, text, ink) for start in starts)
    taken += [one for one in places if _is_free(canvas, window, one, taken)][:1]


def _is_free(canvas: Canvas, window: Window, label: _Label, taken: Sequence[_Label]) -> bool:
    last = label.column + cell_len(label.text)
    if not 0 <= label.row < window.rows or label.column <= GUTTER or last > canvas.columns:
        return False
    dots = (
        canvas.has_dot(x, y)
        for x in range(label.column * ACROSS, last * ACROSS)
        for y in range(label.row * DOWN, (label.row + 1) * DOWN)
    )
    return not any(dots) and not any(label.meets(other) for other in taken)


def _draw_axes(canvas: Canvas, window: Window, words: SpeedWords) -> None:
    edge = GUTTER * ACROSS - 1
    canvas.line(edge, 0, edge, window.rows * DOWN - 1, "faint")
    used: set[int] = set()
    if window.rows > _FEW_ROWS:
        canvas.write(0, 0, words.gain, "dim")
        used.add(0)
    for gain in _GAINS:
        row = window.cell(1, gain)[1]
        if window.low <= gain <= window.high and row not in used:
            ink: Ink = "text" if gain == 1 else "faint"
            canvas.write(0, row, f"{plain_number(gain):>{GUTTER - 2}}", ink)
            used.add(row)
    canvas.write(0, window.rows, words.length, "dim")
    free = GUTTER
    for length in _LENGTHS:
        column = window.cell(length, 1.0)[0] + GUTTER
        if length <= window.longest and free <= column:
            canvas.write(column, window.rows, str(length), "text")
            free = column + len(str(length)) + 1
