"""A knob as two lines: its name and what turning it costs, then its ladder drawn as stops.

Where there are many of them, a knob is one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from game.widgets.cells import clip, pad
from game.widgets.ink import Ink, Line, Run


@dataclass(frozen=True)
class Stop:
    """`barred` stops cannot be taken by this machine or model."""

    words: str
    barred: bool = False


@dataclass(frozen=True)
class KnobRow:
    """`place` is the stop where the knob stands; `cost` says what moving it costs, in words."""

    name: str
    cost: str
    stops: Sequence[Stop]
    place: int
    chosen: bool


def draw_knob(row: KnobRow, width: int) -> list[Line]:
    """Two lines of exactly `width` cells."""
    mark = ">" if row.chosen else " "
    cost = clip(row.cost, max(width - 12, 4))
    name = pad(row.name, max(width - cell_len(cost) - 3, 4))
    head: Line = (
        Run(f"{mark} ", "bronze"),
        Run(name + " ", "strong" if row.chosen else "text"),
        Run(cost, "dim"),
    )
    return [head, _fit(_stops(row), row.place, width)]


def draw_knob_line(row: KnobRow, name_cells: int, width: int) -> list[Line]:
    """One line of exactly `width` cells: the name in `name_cells` of them, then the stops."""
    mark = ">" if row.chosen else " "
    head = (
        Run(f"{mark} ", "bronze"),
        Run(pad(row.name, name_cells), "strong" if row.chosen else "text"),
    )
    return [(*head, *_fit(_stops(row), row.place, max(width - name_cells - 2, 8)))]


def _stops(row: KnobRow) -> list[Run]:
    """One run a stop, brackets round the one that is set, so that no place ever shifts."""
    runs: list[Run] = []
    for place, stop in enumerate(row.stops):
        if place == row.place:
            runs.append(Run(f"[{stop.words}]", "strong" if row.chosen else "bronze"))
        else:
            ink: Ink = "faint" if stop.barred else "dim"
            words = f"-{stop.words}-" if stop.barred else f" {stop.words} "
            runs.append(Run(words, ink))
    return runs


def _fit(runs: Sequence[Run], place: int, width: int) -> Line:
    """As many stops as fit, the set one always among them; `<` and `>` say there are more."""
    room = width - 4
    first, last = place, place + 1
    while True:
        grown = False
        for start, end in ((first, last + 1), (first - 1, last)):
            if start < 0 or end > len(runs):
                continue
            if sum(cell_len(run.text) for run in runs[start:end]) <= room:
                first, last, grown = start, end, True
                break
        if not grown:
            break
    used = sum(cell_len(run.text) for run in runs[first:last])
    return (
        Run(" <" if first > 0 else "  ", "faint"),
        *runs[first:last],
        Run(" " * max(room - used, 0) + ("> " if last < len(runs) else "  "), "faint"),
    )
