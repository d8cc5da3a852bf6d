"""The Twin Pendulum as arithmetic and as a picture: two rods whose periods are measurements.

One full swing takes a time proportional to what one token of that phase cost. Both are stretched
by the same factor, so that the slower takes SLOW_PERIOD seconds and the ratio stays the data.
A rod too fast for the frames is shown as a camera would: the fan it swept while the shutter was
open, denser where it lingered, under the rod at its true phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, cos, floor, pi, radians, sin

from game.widgets.canvas import ACROSS, DOWN, Canvas
from game.widgets.ink import Ink, Line

SLOW_PERIOD = 4.0
WIDEST = radians(34)
_RAYS = 56
_SAMPLES = 96


@dataclass(frozen=True)
class Rhythm:
    """Seconds a token cost in each phase, as measured; both are positive."""

    prefill: float
    decode: float

    def __post_init__(self) -> None:
        if not (self.prefill > 0 and self.decode > 0):
            raise ValueError(
                f"a token takes a positive time, not {self.prefill} s and {self.decode} s"
            )

    @property
    def ratio(self) -> float:
        """How many times dearer a decoded token is than a prefilled one."""
        return self.decode / self.prefill

    @property
    def periods(self) -> tuple[float, float]:
        """Seconds on the screen of one full swing: (prefill, decode)."""
        stretch = SLOW_PERIOD / max(self.prefill, self.decode)
        return self.prefill * stretch, self.decode * stretch


@dataclass(frozen=True)
class Rod:
    """One pendulum at one moment. `phase` counts full swings; None hangs at rest, unmeasured.

    `swept` is how far the phase ran while the shutter was open, in swings.
    """

    phase: float | None
    swept: float
    ink: Ink
    thickness: float
    words: Sequence[str]


def angle(phase: float, widest: float = WIDEST) -> float:
    """Radians from the vertical after `phase` full swings: harmonic, so it eases at the turns."""
    return widest * cos(2 * pi * phase)


def exposure(phase: float, swept: float, rays: int = _RAYS) -> list[float]:
    """Share of the shutter's time spent in each of `rays` equal slices of the arc; sums to 1.

    Slices run from the leftmost angle to the rightmost. A whole swing or more fills the arc
    with the arcsine density of a harmonic motion.
    """
    spans = min(swept, 1.0)
    counts = [0.0] * rays
    for sample in range(_SAMPLES):
        turn = angle(phase - spans * (sample + 0.5) / _SAMPLES, 1.0)
        counts[min(int((turn + 1) / 2 * rays), rays - 1)] += 1 / _SAMPLES
    return counts


def draw_rods(
    rods: Sequence[Rod], columns: int, rows: int, middle: Sequence[str], plain: bool = False
) -> list[Line]:
    """`rows` lines of `columns` cells: a beam, the rods, their words beneath, `middle` between."""
    canvas = Canvas(columns, rows, plain)
    words = max((len(rod.words) for rod in rods), default=0)
    floor_dot = (rows - words) * DOWN
    share = canvas.width / max(len(rods), 1)
    length = min(floor_dot - 9, share * 0.9)
    reach = share / 2 - 5
    widest = min(WIDEST, reach / length) if length > 0 else 0.0
    canvas.line(share / 2 - 10, 1, canvas.width - share / 2 + 10, 1, "bronze", 2)
    for number, rod in enumerate(rods):
        pivot = share * (number + 0.5)
        if length >= DOWN:
            _draw_rod(canvas, rod, pivot, length, widest)
        for line, text in enumerate(rod.words):
            row = min(floor(length + 9) // DOWN + 1, rows - words) + line
            canvas.write_centred(int(pivot) // ACROSS, row, text, rod.ink if not line else "dim")
    for line, text in enumerate(middle):
        # Near the beam, where the rods' swing leaves the widest gap.
        row = min(2, max(rows - words - len(middle), 1)) + line
        canvas.write_centred(columns // 2, row, text, "silver" if not line else "dim")
    return canvas.lines()


def _draw_rod(canvas: Canvas, rod: Rod, pivot: float, length: float, widest: float) -> None:
    if rod.phase is not None and rod.swept > 0.004:
        _draw_fan(canvas, rod, pivot, length, widest)
    turn = angle(rod.phase, widest) if rod.phase is not None else 0.0
    tip_x, tip_y = pivot + length * sin(turn), 3 + length * cos(turn)
    ink: Ink = rod.ink if rod.phase is not None else "faint"
    canvas.line(pivot, 3, tip_x, tip_y, ink, rod.thickness)
    canvas.disc(tip_x, tip_y, 2 + rod.thickness / 2, ink)


def _draw_fan(canvas: Canvas, rod: Rod, pivot: float, length: float, widest: float) -> None:
    assert rod.phase is not None
    shares = exposure(rod.phase, rod.swept)
    most = max(shares)
    for ray, spent in enumerate(shares):
        if not spent:
            continue
        turn = widest * (2 * (ray + 0.5) / len(shares) - 1)
        # The longer the rod lingered, the closer the dots; neighbours are staggered.
        stride = ceil(3 / max(spent / most, 0.2))
        start = length * 0.28 + (ray * 0.618 % 1) * stride
        for step in range(int(start), int(length), stride):
            canvas.dot(pivot + step * sin(turn), 3 + step * cos(turn), "faint")
