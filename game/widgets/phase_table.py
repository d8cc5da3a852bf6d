"""Each phase's time, its share of the run, and how much of both ceilings it reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from game.widgets.bars import draw_bar
from game.widgets.cells import pad, pad_left
from game.widgets.figures import duration, share
from game.widgets.ink import Ink, Line, Run

_LEAST_BAR = 4


@dataclass(frozen=True)
class PhaseRow:
    """`bandwidth` and `compute` are shares of the measured ceilings; None where none is counted."""

    name: str
    ink: Ink
    seconds: float
    of_run: float
    bandwidth: float | None = None
    compute: float | None = None


@dataclass(frozen=True)
class PhaseHeads:
    time: str
    of_run: str
    bandwidth: str
    compute: str


def draw_phases(
    rows: Sequence[PhaseRow], heads: PhaseHeads, width: int, plain: bool = False
) -> list[Line]:
    """A line of heads and one a phase, each exactly `width` cells.

    The larger of a phase's two shares is what bound it; it stands in silver.
    """
    name = max(cell_len(row.name) for row in rows)
    time = max(cell_len(heads.time), *(cell_len(duration(row.seconds)) for row in rows))
    run = max(cell_len(heads.of_run), 6, *(cell_len(share(row.of_run)) for row in rows))
    left = width - name - time - run - 8
    column = max(left // 2, 6 + _LEAST_BAR)
    lead = f"{' ' * name}  {pad_left(heads.time, time)}  {pad_left(heads.of_run, run)}"
    head = f"{lead}  {pad(heads.bandwidth, column)}  {pad(heads.compute, column)}"
    lines: list[Line] = [(Run(pad(head, width), "dim"),)]
    for row in rows:
        lines.append(
            (
                Run(pad(row.name, name), row.ink),
                Run("  " + pad_left(duration(row.seconds), time), "text"),
                Run("  " + pad_left(share(row.of_run), run) + "  ", "text"),
                *_ceiling(row.bandwidth, row.compute, column, row.ink, plain),
                Run("  ", "faint"),
                *_ceiling(row.compute, row.bandwidth, column, row.ink, plain),
                Run(" " * max(left - 2 * column, 0), "faint"),  # an odd cell is left over
            )
        )
    return lines


def _ceiling(own: float | None, other: float | None, width: int, ink: Ink, plain: bool) -> Line:
    if own is None:
        return (Run(" " * width, "faint"),)
    words = pad_left(share(own), 6)
    bar = draw_bar(own, max(width - 7, 1), ink, plain)
    return (*bar, Run(" " + words, "silver" if other is None or own >= other else "dim"))
