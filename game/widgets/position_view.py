"""What is lost along a text: mean KL of each run of positions, as columns over the positions."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from game.widgets.canvas import ACROSS, DOWN, Canvas
from game.widgets.cells import pad_left
from game.widgets.figures import plain_number
from game.widgets.ink import Line

GUTTER = 8


def draw_positions(
    losses: Sequence[float],
    tokens: int,
    word: str,
    columns: int,
    rows: int,
    plain: bool = False,
) -> list[Line]:
    """`rows` lines of `columns` cells: columns from 0 to the largest of `losses`, then the axis.

    Each column stands for `tokens` positions; `word` names the axis ("position in tokens").
    """
    canvas = Canvas(columns, rows, plain)
    high = (rows - 1) * DOWN
    offset = GUTTER * ACROSS
    room = canvas.width - offset
    most = max(losses, default=0.0)
    canvas.line(offset - 2, 0, offset - 2, high - 1, "faint")
    for number, loss in enumerate(losses):
        left, right = (room * at // len(losses) for at in (number, number + 1))
        if loss <= 0 or most <= 0:
            continue
        dots = max(round(high * loss / most), 1)
        canvas.box(offset + left, high - dots, offset + right - (right - left > 2), high, "bronze")
    canvas.write(0, 0, pad_left(plain_number(most, 2), GUTTER - 2), "text")
    canvas.write(0, max(rows - 2, 0), pad_left("0", GUTTER - 2), "faint")
    _draw_axis(canvas, len(losses), tokens, word)
    return canvas.lines()


def _draw_axis(canvas: Canvas, runs: int, tokens: int, word: str) -> None:
    """Where runs begin: 0, and the three quarters of the way that have a run's edge."""
    row = canvas.rows - 1
    last = f"{runs * tokens:,}"
    end = canvas.columns - len(last)
    canvas.write(end, row, last, "dim")
    canvas.write(GUTTER, row, "0", "dim")
    free = GUTTER + 2
    for quarter in (1, 2, 3):
        run = runs * quarter // 4
        column = GUTTER + (canvas.columns - GUTTER) * run // max(runs, 1)
        text = f"{run * tokens:,}"
        if free <= column and run and column + len(text) < end - cell_len(word) - 3:
            canvas.write(column, row, text, "dim")
            free = column + len(text) + 1
    canvas.write(end - cell_len(word) - 2, row, word, "faint")
