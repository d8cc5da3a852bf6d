"""Names on the left, figures on the right, wrapped where they are long."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from game.widgets.cells import pad, wrap
from game.widgets.ink import Line, Run

Row = tuple[str, str]
_LEAST_LEFT, _LEAST_RIGHT, _GAP = 8, 8, 2


def left_cells(rows: Sequence[Row], width: int) -> int:
    """Cells of the names' column: the longest name, at most half of `width`."""
    longest = max((cell_len(name) for name, _ in rows), default=0)
    return min(longest, max(width // 2, _LEAST_LEFT))


def draw_table(rows: Sequence[Row], width: int, left: int | None = None) -> list[Line]:
    """Lines of at most `width` cells; `left` is given where several tables share a column."""
    left = left_cells(rows, width) if left is None else left
    lines: list[Line] = []
    for name, figure in rows:
        for number, text in enumerate(wrap(figure, max(width - left - _GAP, _LEAST_RIGHT))):
            head = pad(name, left) if number == 0 else " " * left
            lines.append((Run(head + " " * _GAP, "dim"), Run(text, "text")))
    return lines
