"""The cliff: what is lost (KL, nats a token) against the bits a weight holds, both logarithmic.

It is walked from the left, where every bit is kept, to the right; down is loss. The rock is what
plain rounding was measured to lose at each width; every trial of the player's is a foothold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor

from rich.cells import cell_len

from engine.quality_report import Rung
from game.widgets.canvas import ACROSS, DOWN, Canvas
from game.widgets.figures import plain_number
from game.widgets.footholds import Foothold, Hold
from game.widgets.ink import Ink, Line
from game.widgets.log_scale import log_part

GUTTER = 7
"""Cells left of the plot, for the figures of the losses."""
WIDEST, NARROWEST = 16.0, 2.0
"""Bits that are always in view, and the losses likewise."""
LEAST, MOST = 0.003, 30.0
MARKS: dict[Hold, tuple[str, Ink]] = {
    "met": ("o", "wall"),
    "missed": ("x", "bronze"),
    "fallen": ("v", "danger"),
    "open": ("?", "dim"),
}
RUNG = "#"
_TICKS_BITS = (32, 16, 12, 8, 6, 5, 4, 3, 2, 1)
_MARGIN = 1.06
"""How far the plot reaches beyond the outermost bits, as a factor."""


@dataclass(frozen=True)
class Cliff:
    """`edge` is the loss at which meaning is gone; goals are None where the hall has none."""

    footholds: Sequence[Foothold]
    rungs: Sequence[Rung]
    edge: float
    goal_kl: float | None = None
    goal_bits: float | None = None


@dataclass(frozen=True)
class CliffWords:
    """Of the axes (short: they stand in the gutter), the edge and the goals' corner."""

    kl: str
    bits: str
    edge: str
    goals: str


@dataclass(frozen=True)
class Window:
    """Bits from `wide` (left) to `narrow`, losses from `least` (top) to `most`; in cells."""

    wide: float
    narrow: float
    least: float
    most: float
    columns: int
    rows: int

    def place(self, bits: float, kl: float) -> tuple[float, float]:
        """(x, y) in dots; what lies outside stands at the margin."""
        across = log_part(bits, self.narrow, self.wide)
        down = log_part(kl, self.least, self.most)
        return (1 - across) * (self.columns * ACROSS - 1), down * (self.rows * DOWN - 1)

    def cell(self, bits: float, kl: float) -> tuple[int, int]:
        x, y = self.place(bits, kl)
        return floor(x + 0.5) // ACROSS, floor(y + 0.5) // DOWN


def window_for(cliff: Cliff, columns: int, rows: int) -> Window:
    """Everything measured is inside, but a loss of nothing: that has no logarithm."""
    places = [(one.bits, one.kl) for one in cliff.footholds]
    places += [(float(one.bits), one.kl) for one in cliff.rungs]
    bits = [width for width, _ in places]
    losses = [kl for _, kl in places if kl > 0]
    return Window(
        wide=max(WIDEST, *bits, WIDEST) * _MARGIN,
        narrow=min(NARROWEST, *bits, NARROWEST) / _MARGIN,
        least=max(min(LEAST, *losses, LEAST), LEAST / 1e3),
        most=max(MOST, *losses, MOST),
        columns=columns,
        rows=rows,
    )


def draw_cliff(
    cliff: Cliff, words: CliffWords, columns: int, rows: int, plain: bool = False
) -> list[Line]:
    """`rows` lines of `columns` cells, the last the axis of bits."""
    canvas = Canvas(columns, rows, plain)
    window = window_for(cliff, max(columns - GUTTER, 1), max(rows - 1, 1))
    _draw_rock(canvas, window, cliff.rungs)
    _draw_edge(canvas, window, cliff.edge, words.edge)
    _draw_goals(canvas, window, cliff, words.goals)
    _draw_axes(canvas, window, words)
    for rung in cliff.rungs:
        column, row = window.cell(rung.bits, rung.kl)
        canvas.write(column + GUTTER, row, RUNG, "bronze")
    for number, foothold in enumerate(cliff.footholds):
        _draw_foothold(canvas, window, foothold, number == len(cliff.footholds) - 1)
    return canvas.lines()


def _draw_foothold(canvas: Canvas, window: Window, foothold: Foothold, newest: bool) -> None:
    column, row = window.cell(foothold.bits, foothold.kl)
    sign, ink = MARKS[foothold.hold]
    if newest:
        canvas.write(column + GUTTER - 1, row, f"({sign})", "silver")
    else:
        canvas.write(column + GUTTER, row, sign, ink)


def _draw_rock(canvas: Canvas, window: Window, rungs: Sequence[Rung]) -> None:
    """Its face from rung to rung, and beneath it loose stone, which has no measure."""
    places = [window.place(rung.bits, rung.kl) for rung in rungs]
    offset = GUTTER * ACROSS
    bottom = window.rows * DOWN
    for (x0, y0), (x1, y1) in zip(places, places[1:], strict=False):
        for x in range(ceil(x0), floor(x1) + 1):
            if canvas.plain or x1 <= x0:
                break
            face = y0 + (y1 - y0) * (x - x0) / (x1 - x0)
            for y in range(floor(face) + 3, bottom):
                if (x + 3 * y) % 8 == 0:
                    canvas.dot(offset + x, y, "faint")
    for (x0, y0), (x1, y1) in zip(places, places[1:], strict=False):
        canvas.line(offset + x0, y0, offset + x1, y1, "bronze")


def _draw_edge(canvas: Canvas, window: Window, edge: float, word: str) -> None:
    """A broken line where the meaning is lost, named at its left end."""
    _, y = window.place(window.wide, edge)
    for x in range(GUTTER * ACROSS, canvas.width):
        if x % 6 < 3:
            canvas.dot(x, y + 0.5, "dim")
    canvas.write(GUTTER + 1, floor(y + 0.5) // DOWN, f" {word} ", "dim")


def _draw_goals(canvas: Canvas, window: Window, cliff: Cliff, word: str) -> None:
    """The corner in which both goals hold: from their bits to the right, above their loss."""
    if cliff.goal_kl is None or cliff.goal_bits is None:
        return
    x, y = window.place(cliff.goal_bits, cliff.goal_kl)
    left, bottom = GUTTER * ACROSS + floor(x + 0.5), floor(y + 0.5)
    for down in range(0, bottom + 1, 2):
        canvas.dot(left, down, "wall")
    for across in range(left, canvas.width, 3):
        canvas.dot(across, bottom, "wall")
    start = canvas.columns - cell_len(word) - 1
    if start > left / ACROSS:
        canvas.write(start, 0, word, "wall")


def _draw_axes(canvas: Canvas, window: Window, words: CliffWords) -> None:
    edge = GUTTER * ACROSS - 1
    bottom = window.rows * DOWN
    canvas.line(edge, 0, edge, bottom - 1, "faint")
    canvas.write(0, 0, words.kl, "dim")
    for tick in (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, 100.0):
        if window.least <= tick <= window.most:
            row = floor(window.place(window.wide, tick)[1] + 0.5) // DOWN
            if row:
                canvas.write(0, row, f"{plain_number(tick):>{GUTTER - 2}}", "faint")
    canvas.write(0, window.rows, words.bits, "dim")
    free = GUTTER
    for bits in _TICKS_BITS:
        if not window.narrow <= bits <= window.wide:
            continue
        column = window.cell(bits, window.most)[0] + GUTTER
        text = str(bits)
        if free <= column:
            canvas.write(column, window.rows, text, "text")
            free = column + len(text) + 1
