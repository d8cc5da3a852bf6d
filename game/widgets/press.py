"""The press: how one matrix's weights lie before they are quantised, and on the grid after.

Both share the axis of the weights' values; before stands above it, after hangs below. Each half is
as high as its own tallest column, whose share of all the weights is told beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from engine.quantised import Histogram
from game.widgets.canvas import ACROSS, DOWN, Canvas
from game.widgets.cells import clip
from game.widgets.figures import plain_number
from game.widgets.ink import Ink, Line

_GAP = 2


@dataclass(frozen=True)
class Column:
    """Dots [left, right) of a chart, and the weights that stand there."""

    left: int
    right: int
    count: int


def tallest(counts: Sequence[int]) -> float:
    """The share of all weights that lie in the fullest step; 0 where there are none."""
    total = sum(counts)
    return max(counts) / total if total else 0.0


def columns_of(counts: Sequence[int], dots: int) -> list[Column]:
    """The steps side by side over `dots`; where there are more steps than dots, several are one."""
    steps = min(len(counts), dots)
    return [
        Column(
            step * dots // steps,
            (step + 1) * dots // steps,
            sum(counts[step * len(counts) // steps : (step + 1) * len(counts) // steps]),
        )
        for step in range(steps)
    ]


def draw_press(
    lies: Histogram,
    before: Sequence[str],
    after: Sequence[str],
    columns: int,
    rows: int,
    plain: bool = False,
) -> list[Line]:
    """`rows` lines of `columns` cells. `before` and `after` are the gutter's words, each a line."""
    canvas = Canvas(columns, rows, plain)
    gutter = _gutter([*before, *after], columns)
    above = (rows - 1) // 2
    _draw_half(canvas, lies.before, gutter, above, 0, "silver")
    _draw_half(canvas, lies.after, gutter, above + 1, rows - above - 1, "bronze")
    zero = -lies.low / (lies.high - lies.low) if lies.low < 0 < lies.high else None
    ends = (plain_number(lies.low, 2), plain_number(lies.high, 2))
    draw_axis(canvas, gutter, above, ends, zero)
    write_down(canvas, 0, before[:above], gutter, "silver")
    write_down(canvas, above + 1, after[: rows - above - 1], gutter, "bronze")
    return canvas.lines()


def _gutter(words: Sequence[str], columns: int) -> int:
    return min(max(map(cell_len, words), default=0) + _GAP, columns // 3)


def _draw_half(
    canvas: Canvas,
    counts: Sequence[int],
    gutter: int,
    top: int,
    below: int,
    ink: Ink,
) -> None:
    """Columns that stand on row `top` (`below` 0), or hang from it `below` rows down."""
    offset = gutter * ACROSS
    found = columns_of(counts, canvas.width - offset)
    most = max((column.count for column in found), default=0)
    high = (below or top) * DOWN
    for column in found:
        if not column.count:
            continue
        # Something is never drawn as nothing.
        dots = max(round(high * column.count / most), 1)
        first = top * DOWN if below else top * DOWN - dots
        canvas.box(offset + column.left, first, offset + column.right, first + dots, ink)


def draw_axis(
    canvas: Canvas, gutter: int, row: int, ends: tuple[str, str], zero: float | None
) -> None:
    """A line with its ends in words, and 0 at its share of the way where it is on it."""
    for x in range(gutter * ACROSS, canvas.width, 2):
        canvas.dot(x, row * DOWN + 1, "faint")
    low, high = ends
    left, right = gutter + cell_len(low), canvas.columns - cell_len(high)
    if zero is not None:
        last = canvas.width - gutter * ACROSS - 1
        column = gutter + round(zero * last) // ACROSS
        if left < column < right - 1:
            canvas.write(column, row, "0", "text")
    canvas.write(gutter, row, low, "dim")
    canvas.write(right, row, high, "dim")


def write_down(canvas: Canvas, row: int, words: Sequence[str], gutter: int, ink: Ink) -> None:
    """The first word in its ink, what is said of it beneath."""
    for number, one in enumerate(words):
        canvas.write(0, row + number, clip(one, gutter - 1), ink if number == 0 else "dim")


def level_places(levels: int, dots: int) -> list[int]:
    """The dots at which `levels` equal steps apart stand, from the first dot to the last."""
    if levels < 2:
        return [0] * levels
    return [round(level * (dots - 1) / (levels - 1)) for level in range(levels)]


def draw_levels(
    levels: int,
    ends: tuple[str, str],
    symmetric: bool,
    columns: int,
    rows: int,
    plain: bool = False,
) -> list[Line]:
    """The empty grid of one group: an axis, and from it a groove for each level.

    Symmetric grids have 0 at level levels / 2: one code more below it than above.
    """
    canvas = Canvas(columns, rows, plain)
    zero = (levels // 2) / (levels - 1) if symmetric else None
    for x in level_places(levels, canvas.width):
        canvas.line(x, DOWN, x, canvas.height - 1, "bronze")
    draw_axis(canvas, 0, 0, ends, zero)
    return canvas.lines()
