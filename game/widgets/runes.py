"""The Latency Wall: a field of dim runes, as dense as the debt, with a lit door in it.

Rune columns are two cells wide, so a wide rune is never cut. Column k shows an endless stream of
runes; in one second every column moves down one cell, even columns on the beat and odd ones half
a second later.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar, Literal

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.geometry import Region
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from game.theme import BRONZE_BRIGHT, CYAN, INK, VIOLET

Script = Literal["zh", "en", "ascii"]
SIGNS: dict[Script, str] = {
    "zh": "時刻延滯遲緩漏瞬息辰晷",
    "en": "⌽⍉⍟⌾⍜⍬⍫⍱⍋⍒⍎⍕⍝⍦⍧⍭⍳⍴⍵⍺⌇",
    "ascii": "|/\\-+=:;~^<>%&?!",
}
PITCH = 2  # cells a rune column takes
_SHADES = 4  # how bright a rune is of itself
_GLOWS = 9  # how much of the door's light falls on it
_DRIFT_SECONDS = 0.5
_REACH = 4.2  # cells the glow reaches before it falls to 1/e
_SPARSEST, _DENSEST, _DEBT_SCALE = 0.34, 0.94, 22.0


def density(debt: int) -> float:
    """Share of places that hold a rune: 0.34 without debt, towards 0.94 as it grows."""
    owed = 1.0 - math.exp(-max(debt, 0) / _DEBT_SCALE)
    return _SPARSEST + (_DENSEST - _SPARSEST) * owed


def tainted(debt: int) -> float:
    """Share of the runes that are violet: none without debt, at most one in nine."""
    return (1.0 - math.exp(-max(debt, 0) / _DEBT_SCALE)) / 9


def scatter(x: int, y: int, seed: int) -> int:
    """A 32-bit hash of a place: equal places hold equal runes, on every machine."""
    value = (x * 374_761_393 + y * 668_265_263 + seed * 2_246_822_519) & 0xFFFFFFFF
    value = ((value ^ (value >> 13)) * 1_274_126_177) & 0xFFFFFFFF
    return value ^ (value >> 16)


@lru_cache(256)
def rune_style(shade: int, glow: int, violet: bool) -> Style:
    """`shade` 0 (dim) to 3, `glow` 0 (none) to 8 (at the door's edge)."""
    own = Color.parse(VIOLET if violet else CYAN)
    strength = (0.26, 0.38, 0.54, 0.78)[shade]
    light = glow / (_GLOWS - 1)
    lit = own.blend(Color.parse(BRONZE_BRIGHT), 0.6 * light if violet else light**0.7)
    colour = Color.parse(INK).blend(lit, min(1.0, strength + 0.75 * light**1.4))
    return Style(color=colour.rich_color)


def door_rows(door: Region) -> list[tuple[int, int]]:
    """The opening of each of the door's rows as (first cell, one past the last): an arch."""
    rows = []
    for row in range(door.height):
        inset = _ARCH[row] if row < len(_ARCH) else 0
        rows.append((door.x + inset, door.right - inset))
    return rows


_ARCH = (8, 4, 2)  # cells cut from each side of the topmost rows


class RuneField(Widget):
    """`door` is where the wall stands open, in cells of this widget; None where it does not."""

    DEFAULT_CSS: ClassVar[str] = "RuneField { background: $ink; }"

    def __init__(self, script: Script = "zh", debt: int = 0, seed: int = 1) -> None:
        super().__init__()
        self._script: Script = script
        self._debt = debt
        self._seed = seed
        self._beat = 0  # half seconds since the start
        self._door: Region | None = None
        self._timer: Timer | None = None

    def show(self, script: Script, debt: int) -> None:
        if (script, debt) != (self._script, self._debt):
            self._script, self._debt = script, debt
            self.refresh()

    def open_door(self, door: Region | None) -> None:
        """Leave `door` free of runes and let its light fall on those around it."""
        if door != self._door:
            self._door = door
            self.refresh()

    def drift(self, moving: bool) -> None:
        """Let the runes drift, or hold them where they are."""
        if not moving and self._timer is not None:
            self._timer.stop()
            self._timer = None
        elif moving and self._timer is None:
            self._timer = self.set_interval(_DRIFT_SECONDS, self.step)

    @property
    def drifting(self) -> bool:
        return self._timer is not None

    def step(self) -> None:
        """Half a second on: every other column moves down one cell."""
        self._beat += 1
        height = self.size.height
        moved = range((self._beat + 1) % 2, self.size.width // PITCH, 2)
        self.refresh(*(Region(column * PITCH, 0, PITCH, height) for column in moved))

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        glow = light_map(width // PITCH, self.size.height, self._door)[y]
        opening = self._opening(y)
        signs = SIGNS[self._script]
        sparse = density(self._debt)
        # The runes crowd to the light, so that the door has an edge however thin the wall is.
        limits = [int((sparse + (1 - sparse) * min(1.0, 1.3 * step / 8)) * 1024)
                  for step in range(_GLOWS)]  # fmt: skip
        violet_limit = int(tainted(self._debt) * 256)
        blank = self.rich_style
        segments: list[Segment] = []
        gap = 0
        for column in range(width // PITCH):
            # Even columns move on odd beats, odd ones on even beats.
            moved = (self._beat + 1 - column % 2) // 2
            place = scatter(column, y - moved, self._seed)
            cell = column * PITCH
            if (place & 1023) >= limits[glow[column]] or (
                opening and opening[0] < cell + 2 and cell < opening[1]
            ):
                gap += PITCH
                continue
            if gap:
                segments.append(Segment(" " * gap, blank))
                gap = 0
            style = rune_style(
                (place >> 10) % _SHADES,
                glow[column],
                ((place >> 12) & 255) < violet_limit,
            )
            sign = signs[(place >> 20) % len(signs)]
            segments.append(Segment(sign if self._script == "zh" else sign + " ", blank + style))
        segments.append(Segment(" " * (gap + width % PITCH), blank))
        return Strip(segments, width)

    def _opening(self, y: int) -> tuple[int, int] | None:
        door = self._door
        if door is None or not door.y <= y < door.bottom:
            return None
        return door_rows(door)[y - door.y]


@lru_cache(4)
def light_map(columns: int, rows: int, door: Region | None) -> tuple[tuple[int, ...], ...]:
    """How much light falls on each rune, 0 to 8: round the door, and on the floor before it.

    Distances are in cells' heights; a cell is half as wide as it is high.
    """
    if door is None or door.area <= 0:
        return ((0,) * columns,) * rows
    opening = door_rows(door)
    lit = []
    for y in range(rows):
        nearest = min(max(y, door.y), door.bottom - 1)
        left, right = opening[nearest - door.y]
        lit.append(
            tuple(_light_at(column * PITCH, y, left, right, door) for column in range(columns))
        )
    return tuple(lit)


def _light_at(x: int, y: int, left: int, right: int, door: Region) -> int:
    aside = max(left - x - 1, x - right, 0) / 2
    above = max(door.y - y, 0)
    below = max(y - door.bottom + 1, 0)
    light = math.exp(-(math.hypot(aside, above + below) / _REACH))
    if below:
        # The light that leaves the door spreads on the floor as it goes.
        spread = (door.width / 2 + 3 * below) / 2
        off = abs(x + 1 - (door.x + door.width / 2)) / 2
        light = max(light, math.exp(-below / 7) * math.exp(-((off / spread * 1.25) ** 4)))
    return round(light * (_GLOWS - 1))
