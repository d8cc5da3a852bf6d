"""One request laid out in time: what neither phase claims, prefill, then every decode step.

A run's account has the total of the first kind and not its place, so it is drawn in front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, log10
from typing import Literal

from engine.trial import RunSample
from game.widgets.canvas import ACROSS, DOWN, Canvas
from game.widgets.figures import duration
from game.widgets.ink import Ink, Line

Phase = Literal["other", "prefill", "decode"]
PHASES: tuple[Phase, ...] = ("other", "prefill", "decode")
INK_OF: dict[Phase, Ink] = {"other": "dim", "prefill": "bronze", "decode": "wall"}
BAND_ROWS = 3
_LEAST_STEP_DOTS = 3
_LEAST_SECONDS = 1e-12  # nothing that a clock can tell from no time at all


@dataclass(frozen=True)
class Spell:
    """A stretch of time that one phase had."""

    phase: Phase
    seconds: float


def spells(sample: RunSample) -> tuple[Spell, ...]:
    """Every stretch of a run in order; their sum is the wall time the phases account for."""
    steps = tuple(Spell("decode", seconds) for seconds in sample.step_seconds)
    head = (Spell("other", sample.other_seconds), Spell("prefill", sample.prefill_seconds))
    return (*head, *steps)


def edges(parts: Sequence[Spell], dots: int, total: float | None = None) -> list[int]:
    """Where each stretch begins and the last one ends, in whole dots: never decreasing.

    `total` seconds fill all `dots`; without it the stretches do. Cumulative times are rounded,
    not the stretches, so the error never adds up.
    """
    if total is None:
        total = sum(part.seconds for part in parts)
    found, elapsed = [0], 0.0
    for part in parts:
        elapsed += part.seconds
        found.append(round(dots * elapsed / total) if total > 0 else 0)
    return found


def draw_timeline(
    parts: Sequence[Spell],
    columns: int,
    plain: bool = False,
    total: float | None = None,
    band_rows: int = BAND_ROWS,
) -> list[Line]:
    """A band of `band_rows` lines, and under it an axis of two: ticks and their times.

    `total` is the time the whole width stands for, while a run is still under way.

    A decode step ends in a gap one dot wide while the steps are at least three dots long;
    shorter ones are told apart by height, up and down in turn.
    """
    canvas = Canvas(columns, band_rows + 2, plain)
    total = sum(part.seconds for part in parts) if total is None else total
    if not parts or total < _LEAST_SECONDS:
        return canvas.lines()
    bottom = band_rows * DOWN
    step = 0
    places = pairwise(edges(parts, canvas.width, total))
    for part, (left, right) in zip(parts, places, strict=True):
        ink = INK_OF[part.phase]
        if part.phase == "prefill":
            canvas.box(left, 0, right, bottom, ink)
        elif part.phase == "other":
            for x in range(left, right):
                canvas.box(x, bottom - 3 if x % 2 else bottom - 5, x + 1, bottom, ink)
        else:
            wide = right - left >= _LEAST_STEP_DOTS
            top = 2 if wide or step % 2 == 0 else 5
            canvas.box(left, top, right - 1 if wide else right, bottom, ink)
            step += 1
    _draw_axis(canvas, total)
    return canvas.lines()


def _draw_axis(canvas: Canvas, total: float) -> None:
    row = canvas.rows - 2
    canvas.line(0, row * DOWN + 1, canvas.width - 1, row * DOWN + 1, "faint")
    step = nice_step(total, max(canvas.columns // 14, 2))
    last = canvas.columns
    count = floor(total / step + 1e-9)
    end = duration(total)
    canvas.write(canvas.columns - len(end), row + 1, end, "dim")
    last -= len(end)
    for number in range(count + 1):
        x = min(round(canvas.width * number * step / total), canvas.width - 1)
        canvas.line(x, row * DOWN + 1, x, row * DOWN + 3, "faint")
        words = duration(number * step) if number else "0"
        if x // ACROSS + len(words) < last:
            canvas.write(x // ACROSS, row + 1, words, "dim")


def nice_step(total: float, wanted: int) -> float:
    """1, 2 or 5 times a power of ten, giving at most `wanted` steps in `total` (> 0)."""
    power = 10.0 ** floor(log10(total / wanted))
    return next(power * step for step in (1, 2, 5, 10) if total / (power * step) <= wanted + 1e-9)
