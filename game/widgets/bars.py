"""Bars that measure: shares of a whole, and parts stacked into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from game.widgets.canvas import ACROSS, Canvas
from game.widgets.ink import Ink, Line


@dataclass(frozen=True)
class Part:
    amount: float
    ink: Ink


def fill_dots(share: float, columns: int) -> int:
    """Dots of a bar for a share in [0, 1]: something is never drawn as nothing, nor as all."""
    full = columns * ACROSS
    dots = round(min(max(share, 0.0), 1.0) * full)
    if share > 0:
        dots = max(dots, 1)
    return min(dots, full - 1) if share < 1 else dots


def draw_bar(share: float, columns: int, ink: Ink, plain: bool = False) -> Line:
    """One line: `share` of the width filled, the rest a faint rail."""
    canvas = Canvas(columns, 1, plain)
    for x in range(0, canvas.width, 2):
        canvas.dot(x, 2, "faint")
    canvas.box(0, 1, fill_dots(share, columns), 4, ink)
    return canvas.lines()[0]


def stack_edges(parts: Sequence[Part], whole: float, columns: int) -> list[int]:
    """Where each part ends, in dots, on a bar `columns` wide that stands for `whole`.

    Every part above zero has a dot while there is room; the last edge is the sum's true place.
    """
    full = columns * ACROSS
    found: list[int] = []
    total, last = 0.0, 0
    for part in parts:
        total += part.amount
        edge = round(full * min(total / whole, 1.0)) if whole > 0 else 0
        edge = min(max(edge, last + 1 if part.amount > 0 else last), full)
        found.append(edge)
        last = edge
    return found


@dataclass(frozen=True)
class Rim:
    """A bound on a stack: `bound` is its place, `total` where all that is asked would end."""

    bound: float
    total: float


def draw_stack(
    parts: Sequence[Part],
    whole: float,
    columns: int,
    plain: bool = False,
    rim: Rim | None = None,
) -> list[Line]:
    """One line: the parts side by side, told apart by height as well as by ink.

    Over a rim, from the last part (or the rim, if that is further) to what is asked in all, the
    bar is violet and full high; the rim itself is a sign, `|`.
    """
    canvas = Canvas(columns, 1, plain)
    for x in range(0, canvas.width, 2):
        canvas.dot(x, 2, "faint")
    left = 0
    for number, (part, right) in enumerate(
        zip(parts, stack_edges(parts, whole, columns), strict=True)
    ):
        canvas.box(left, number % 3, right, 4, part.ink)
        left = right
    if rim is not None and whole > 0:
        _draw_rim(canvas, rim, whole, left)
    return canvas.lines()


def _draw_rim(canvas: Canvas, rim: Rim, whole: float, filled: int) -> None:
    def place(amount: float) -> int:
        return round(canvas.width * min(amount / whole, 1.0))

    edge, end = place(rim.bound), place(rim.total)
    if rim.total > rim.bound:
        # Something over the rim is never drawn as nothing.
        end = min(max(end, edge + ACROSS + 1), canvas.width)
        for x in range(filled, edge, 2):
            canvas.box(x, 0, x + 1, 4, "spill")
        canvas.box(edge, 0, end, 4, "spill")
    canvas.write(min(edge // ACROSS, canvas.columns - 1), 0, "|", "strong")
