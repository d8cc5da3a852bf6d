"""A row of small columns: one figure after another, on a scale that begins at 0 and is written."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from game.widgets.canvas import ACROSS, DOWN, Canvas
from game.widgets.ink import Ink, Line

ROWS = 2
_COLUMN, _GAP = 2, 1
"""Cells of a column and between two, where there is room; else a cell each and none between."""


def spark_cells(count: int, width: int) -> int:
    """Cells that `count` columns take within `width`."""
    wide = count * (_COLUMN + _GAP) - _GAP
    return wide if wide <= width else min(count, width)


def draw_spark(
    values: Sequence[float], width: int, ink: Ink = "silver", plain: bool = False
) -> list[Line]:
    """`ROWS` lines of `spark_cells` cells: the largest value fills them, 0 leaves a dot.

    What has no height of its own (a figure that is not finite) is drawn full high.
    """
    if not values or width < 1:
        return []
    shown = list(values[:width])
    cells = spark_cells(len(shown), width)
    step, column = (_COLUMN + _GAP, _COLUMN) if cells > len(shown) else (1, 1)
    most = max((value for value in shown if isfinite(value)), default=0.0)
    canvas = Canvas(cells, ROWS, plain)
    for place, value in enumerate(shown):
        left = place * step * ACROSS
        top = canvas.height - column_dots(value, most, canvas.height)
        canvas.box(left, top, left + column * ACROSS, canvas.height, ink)
    return canvas.lines()


def column_dots(value: float, most: float, height: int = ROWS * DOWN) -> int:
    """Dots of one column; something above 0 is never drawn as nothing, nor is 0 invisible."""
    if not isfinite(value):
        return height
    if most <= 0:
        return 1
    return min(max(round(height * max(value, 0.0) / most), 1), height)
