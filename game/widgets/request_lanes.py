"""A served load laid out in time: one lane a request, waiting, then prefill, then its answer.

Lanes are in order of arrival. All begin at the start of the load, so that a long faint beginning is
a request that waited for room. Two builds are drawn on one scale of seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from engine.trial import LoadSample, RequestSample
from game.widgets.canvas import ACROSS, DOWN, Canvas
from game.widgets.cells import clip
from game.widgets.figures import duration
from game.widgets.ink import Ink, Line

Stretch = Literal["queued", "prefill", "decode"]
STRETCHES: tuple[Stretch, ...] = ("queued", "prefill", "decode")
LANE_INK: Mapping[Stretch, Ink] = {"queued": "faint", "prefill": "bronze", "decode": "wall"}
MARK: Mapping[str, str] = {"chat": "c", "document": "D"}
_DRAWN: tuple[Stretch, ...] = ("queued", "decode", "prefill")
_MARGIN = 2


@dataclass(frozen=True)
class Piece:
    """A stretch of a lane, in dots from the left: [left, right)."""

    stretch: Stretch
    left: int
    right: int


def pieces(request: RequestSample, seconds: float, dots: int) -> tuple[Piece, ...]:
    """A request's stretches on a lane of `dots` that stands for `seconds`; none overlaps.

    A stretch that took any time has a dot.
    """
    found: list[Piece] = []
    edge = 0
    ends: tuple[tuple[Stretch, float], ...] = (
        ("queued", request.queued),
        ("prefill", request.ttft),
        ("decode", request.finished),
    )
    before = 0.0
    for stretch, end in ends:
        right = min(round(dots * end / seconds), dots) if seconds > 0 else 0
        if end > before:
            right = min(max(right, edge + 1), dots)
        right = max(right, edge)
        if right > edge:
            found.append(Piece(stretch, edge, right))
        edge, before = right, max(before, end)
    return tuple(found)


def draw_lanes(
    load: LoadSample, seconds: float, columns: int, rows: int, name: str, plain: bool = False
) -> list[Line]:
    """At most `rows` lines: a head, the lanes, and the load's end on the scale of `seconds`.

    Each request has a line where there is room for all; else two share one.
    """
    lanes = load.requests
    room = max(rows - 2, 1)
    paired = len(lanes) > room
    high = min(-(-len(lanes) // 2) if paired else len(lanes), room)
    canvas = Canvas(columns, high + 2, plain)
    canvas.write(0, 0, clip(name, columns), "text")
    margin = 0 if paired else _MARGIN
    dots = (columns - margin) * ACROSS
    found: list[tuple[int, Piece]] = []
    for number, request in enumerate(lanes[: 2 * high if paired else high]):
        row = 1 + (number // 2 if paired else number)
        if not paired:
            canvas.write(0, row, MARK[request.kind], "dim")
        top = row * DOWN + (2 * (number % 2) if paired else 0)
        found += [(top, part) for part in pieces(request, seconds, dots)]
    # Where two lanes share a cell, work gives it its ink before waiting does.
    for top, part in sorted(found, key=lambda one: _DRAWN.index(one[1].stretch)):
        _draw_piece(canvas, part, margin * ACROSS, top, paired)
    _draw_end(canvas, load.wall_seconds, seconds, margin)
    return canvas.lines()


def _draw_piece(canvas: Canvas, part: Piece, offset: int, top: int, paired: bool) -> None:
    """Told apart by height as well as by ink: far dots, a thick band, a thin line."""
    ink = LANE_INK[part.stretch]
    left, right = offset + part.left, offset + part.right
    line = top if paired else top + 1
    if part.stretch == "prefill":
        canvas.box(left, top, right, top + (1 if paired else 3), ink)
        return
    stride = 4 if part.stretch == "queued" else 2 if paired else 1
    for x in range(left, right, stride):
        canvas.dot(x, line, ink)


def _draw_end(canvas: Canvas, wall: float, seconds: float, margin: int) -> None:
    """The seconds at which the last token came, under the place where it stands."""
    row = canvas.rows - 1
    last = canvas.columns - margin
    at = margin + (min(round(last * wall / seconds), last) if seconds > 0 else 0)
    words = duration(wall)
    start = min(max(at - len(words), 0), canvas.columns - len(words))
    canvas.write(start, row, words, "silver")
