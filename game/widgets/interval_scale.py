"""Goals as intervals against their bounds, all on one logarithmic scale.

The scale is measured / bound, so that every bound stands in one column whatever its unit; the
side on which a goal holds is drawn as solid ground, the other is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from rich.cells import cell_len

from game.rules.verdict import GoalOutcome
from game.widgets.canvas import ACROSS, DOWN, Canvas
from game.widgets.cells import pad, pad_left
from game.widgets.figures import plain_number
from game.widgets.ink import Ink, Line, Run

LEAST_FACTOR = 2.0
MOST_FACTOR = 64.0
_EDGE = 1e-12


@dataclass(frozen=True)
class GoalRow:
    """A goal with its words: name, bound ("<= 1.6"), measured ("2.3"), state ("broken").

    One that was not `measured_at_all` has a bound on the scale and nothing beside it.
    """

    outcome: GoalOutcome
    name: str
    bound: str
    measured: str
    state: str
    measured_at_all: bool = True


@dataclass(frozen=True)
class Marks:
    """Where a goal stands, in dots from the left. `low` <= `measured` <= `high`, all inside."""

    low: float
    measured: float
    high: float
    bound: float


def factor_of(outcomes: Sequence[GoalOutcome]) -> float:
    """The scale runs from bound / factor to bound · factor; all of every interval is inside.

    It stops at MOST_FACTOR: what lies further (a KL of exactly 0) stands at the edge.
    """
    factor = LEAST_FACTOR
    for outcome in outcomes:
        for value in (*outcome.interval, outcome.measured):
            ratio = max(value, _EDGE) / outcome.bound if outcome.bound > 0 else 1.0
            factor = max(factor, ratio * 1.1, 1.1 / ratio)
    return min(factor, MOST_FACTOR)


def marks(outcome: GoalOutcome, factor: float, columns: int) -> Marks:
    """Dots of the interval's ends, the estimate and the bound on a scale `columns` wide."""
    last = columns * ACROSS - 1

    def at(value: float) -> float:
        if outcome.bound <= 0:
            return last / 2 if value <= outcome.bound else float(last)
        ratio = min(max(max(value, _EDGE) / outcome.bound, 1 / factor), factor)
        return last * (log(ratio) / log(factor) + 1) / 2

    low, high = sorted(outcome.interval)
    middle = min(max(at(outcome.measured), at(low)), at(high))
    return Marks(low=at(low), measured=middle, high=at(high), bound=at(outcome.bound))


def ink_of(holds: bool | None) -> Ink:
    return "wall" if holds else "danger" if holds is False else "bronze"


def draw_goal(row: GoalRow, factor: float, columns: int, plain: bool = False) -> Line:
    """One line of exactly `columns` cells: ground, bound, interval, and an `o` at the estimate.

    What was counted and not timed has no interval: it is the point alone.
    """
    outcome = row.outcome
    at = marks(outcome, factor, columns)
    canvas = Canvas(columns, 1, plain)
    good_right = outcome.op == ">="
    for x in range(canvas.width):
        holds_here = x > at.bound if good_right else x < at.bound
        if holds_here or x % 4 == 0:
            canvas.dot(x, 2, "dim" if holds_here else "faint")
    ink = ink_of(outcome.holds)
    if row.measured_at_all and outcome.interval[0] != outcome.interval[1]:
        canvas.box(at.low, 1, at.high + 1, 3, ink)
        for edge in (at.low, at.high):
            canvas.line(edge, 0, edge, DOWN - 1, ink)
    signs: list[tuple[float, str, Ink]] = [(at.bound, "|", "strong")]
    # The estimate lies over the bound where both share a cell: its state is told in words.
    if row.measured_at_all:
        signs.append((at.measured, "o", "silver"))
    for dot, sign, sign_ink in signs:
        canvas.write(round(dot) // ACROSS, 0, sign, sign_ink)
    return canvas.lines()[0]


def draw_axis(factor: float, columns: int, bound_word: str) -> Line:
    """The scale's ends and middle in words: a share of the bound, the bound, its multiple."""
    canvas = Canvas(columns, 1)
    canvas.write(0, 0, f"/ {plain_number(factor, 2)}", "faint")
    canvas.write_centred(columns // 2, 0, bound_word, "faint")
    right = f"x {plain_number(factor, 2)}"
    canvas.write(columns - len(right), 0, right, "faint")
    return canvas.lines()[0]


def draw_goals(
    rows: Sequence[GoalRow], width: int, bound_word: str, plain: bool = False
) -> list[Line]:
    """Every goal in one line of `width` cells, and the axis they share beneath.

    Words come first: the scale takes what names, bounds and figures leave, 16 cells at least
    (then the words are cut).
    """
    if not rows:
        return []
    name = max(cell_len(row.name) for row in rows)
    bound = max(cell_len(row.bound) for row in rows)
    measured = max(cell_len(row.measured) for row in rows)
    state = max(cell_len(row.state) for row in rows)
    gaps = 2 * 4
    scale = width - name - bound - measured - state - gaps
    if scale < 16:
        name = max(name - (16 - scale), 6)
        scale = max(width - name - bound - measured - state - gaps, 2)
    factor = factor_of([row.outcome for row in rows if row.measured_at_all])
    lines = [
        (
            Run(pad(row.name, name) + "  ", "text"),
            Run(pad(row.bound, bound) + "  ", "dim"),
            *draw_goal(row, factor, scale, plain),
            Run("  " + pad_left(row.measured, measured) + "  ", "silver"),
            Run(pad(row.state, state), ink_of(row.outcome.holds)),
        )
        for row in rows
    ]
    lead = Run(" " * (name + bound + 4), "faint")
    return [*lines, (lead, *draw_axis(factor, scale, bound_word))]
