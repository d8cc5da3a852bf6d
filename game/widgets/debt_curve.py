"""The debt after each record, as a curve: the history of the ledger at a glance."""

from __future__ import annotations

from collections.abc import Sequence

from game.widgets.canvas import ACROSS, DOWN, Canvas
from game.widgets.ink import Line


def debt_curve(debts: Sequence[int], columns: int, rows: int, plain: bool) -> list[Line]:
    """`debts` oldest first, the starting 0 included; one step a record, 0 at the bottom."""
    sheet = Canvas(columns, rows, plain)
    across, down = columns * ACROSS - 1, rows * DOWN - 1
    most = max(max(debts, default=0), 1)
    steps = max(len(debts) - 1, 1)
    # Where there are more records than dots, each dot shows the last record that falls on it.
    before: tuple[float, float] | None = None
    for number, debt in enumerate(debts):
        x, y = round(across * number / steps), round(down * (1 - debt / most))
        if before is not None:
            sheet.line(before[0], before[1], x, before[1], "danger")
            sheet.line(x, before[1], x, y, "danger")
        before = (x, y)
    return sheet.lines()
