"""The mountain of the story, drawn in braille dots: a path from the gate to the summit.

A braille cell is 2 dots wide and 4 high. Ridges stand one before another, each inked along its
edge and paling downwards into mist, as in an ink painting; light comes from the left. Near a
lantern (a hall that was passed) the rock takes the colour of bronze.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from game.rules.standing import HallState
from game.theme import BRONZE, BRONZE_BRIGHT, CYAN_BRIGHT, FAINT, INK, SILVER
from game.widgets.runes import scatter

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # [x][y] of a braille cell
_BLANK = 0x2800
_LANTERN_REACH = 3.2  # cells' heights
_PATH_GAP = 2.6  # dots kept free on each side of the path
_MIDDLE = 0.5


@dataclass(frozen=True)
class Station:
    """A hall on the path: the row its name stands in, and its state."""

    row: int
    state: HallState
    here: bool


class Ridge(NamedTuple):
    """A peak at `x`, `top` (shares of the whole), falling by `fall` over `half` the width.

    `bend` below 1 makes it pointed; `mist` is the share of the height over which its ink pales.
    """

    x: float
    top: float
    half: float
    fall: float
    bend: float
    mist: float
    seed: float


_RIDGES = (  # from the farthest to the nearest
    Ridge(0.50, 0.00, 0.50, 1.02, 0.80, 0.36, 0.4),
    Ridge(0.14, 0.40, 0.40, 0.75, 0.95, 0.16, 2.1),
    Ridge(0.90, 0.47, 0.42, 0.80, 0.95, 0.15, 4.4),
    Ridge(0.30, 0.70, 0.52, 0.55, 1.10, 0.13, 5.3),
    Ridge(0.76, 0.79, 0.55, 0.50, 1.10, 0.12, 1.2),
)


def ridge_line(ridge: Ridge, x: float, width: int, height: int) -> float:
    """The dot row of a ridge's edge above column `x`; jagged, but true at its peak."""
    away = abs(x / width - ridge.x) / ridge.half
    along = 70.0 * x / width
    jag = (
        0.034 * math.sin(along * 0.37 + ridge.seed)
        + 0.020 * math.sin(along * 0.83 + 2 * ridge.seed)
        + 0.007 * math.sin(along * 1.9 + 3 * ridge.seed)
    )
    fallen: float = ridge.fall * away**ridge.bend
    return height * (ridge.top + fallen + jag * min(1.0, 5 * away))


def path_x(t: float, width: float) -> float:
    """Where the path runs at height `t` (0 summit, 1 foot), in dots: it winds as it climbs."""
    swing: float = 0.30 * t**1.15 * math.sin(10.5 * t**0.9 + 0.4)
    return width * (_MIDDLE + swing)


class Skyline(NamedTuple):
    """One ridge laid out for a width: by column its edge, and how steeply that falls."""

    ridge: Ridge
    edge: tuple[float, ...]
    slope: tuple[float, ...]


def skylines(width: int, height: int) -> tuple[Skyline, ...]:
    """The ridges from the nearest to the farthest, in dots."""
    found = []
    for ridge in reversed(_RIDGES):
        edge = [ridge_line(ridge, x, width, height) for x in range(-1, width + 1)]
        slope = tuple((edge[x + 2] - edge[x]) / 2 for x in range(width))
        found.append(Skyline(ridge, tuple(edge[1:-1]), slope))
    return tuple(found)


def inked(x: int, y: int, width: int, height: int, ridges: tuple[Skyline, ...]) -> bool:
    """Whether a dot carries ink: the nearest ridge that covers it decides."""
    t = y / max(height - 1, 1)
    if abs(x - path_x(t, width)) < _PATH_GAP * min(1.0, 4 * t):
        return False
    for ridge, edge, slope in ridges:
        depth = y - edge[x]
        if depth < 0:
            continue
        if depth < math.hypot(1.0, slope[x]):
            return True
        shadow = 0.62 if slope[x] > 0 else 0.26
        folds = 0.6 + 0.4 * math.sin(0.42 * x + 0.16 * y + 3 * math.sin(0.05 * y + ridge.seed))
        share = shadow * folds * math.exp(-depth / (ridge.mist * height))
        return (scatter(x, y, 7) & 1023) < share * 1024
    return False


class Mountain(Widget):
    """Stations are rows of this widget; `show` gives them from the summit down."""

    DEFAULT_CSS: ClassVar[str] = "Mountain { background: $ink; }"

    def __init__(self) -> None:
        super().__init__()
        self._stations: tuple[Station, ...] = ()

    def show(self, stations: Sequence[Station]) -> None:
        before, self._stations = self._stations, tuple(stations)
        if [(one.row, one.state) for one in before] != [(one.row, one.state) for one in stations]:
            self.refresh()
            return
        moved = [new.row for old, new in zip(before, stations, strict=True) if old != new]
        if moved:
            self.refresh(*(Region(0, row, self.size.width, 1) for row in moved))

    def render_line(self, y: int) -> Strip:
        ground = self.rich_style
        segments = [Segment(char, ground + style) for char, style in self._cells(y)]
        return Strip(segments, self.size.width).simplify()

    def _cells(self, y: int) -> list[tuple[str, Style]]:
        width, height = self.size
        rock = dot_rows(width, height)[y]
        lanterns = tuple(one.row for one in self._stations if one.state == "passed")
        light = glow_row(y, width, height, lanterns)
        cells = [
            (chr(_BLANK + dots) if dots else " ", rock_style(glow))
            for dots, glow in zip(rock, light, strict=True)
        ]
        walked = y >= self._walked_row()
        for x, dots in path_dots(y, width, height).items():
            cells[x] = (chr(_BLANK + dots), path_style(walked))
        station = next((one for one in self._stations if one.row == y), None)
        if station is not None:
            at = station_x(y, width, height)
            for x in range(at + 2, width, 2):
                if cells[x][0] == " ":
                    cells[x] = (".", leader_style(station.here))
            cells[at] = (_SIGN[station.state], station_style(station.state, station.here))
        return cells

    def _walked_row(self) -> int:
        """The highest row the player has reached: the path below it is lit."""
        rows = [one.row for one in self._stations if one.state != "sealed"]
        return min(rows, default=10**6)


_SIGN: dict[HallState, str] = {"passed": "•", "open": "◦", "sealed": "."}


def station_x(row: int, width: int, height: int) -> int:
    """The cell of the path at that row."""
    t = (row * 4 + 1.5) / max(height * 4 - 1, 1)
    return min(int(path_x(t, width * 2)) // 2, max(width - 1, 0))


@lru_cache(512)
def glow_row(y: int, width: int, height: int, lanterns: tuple[int, ...]) -> tuple[int, ...]:
    """Light of the nearest lantern on each cell of row `y`, 0 to 6; `lanterns` are rows."""
    places = [(station_x(row, width, height), row) for row in lanterns]
    light = []
    for x in range(width):
        nearest = min((math.hypot((x - at) / 2, y - row) for at, row in places), default=math.inf)
        light.append(round(6 * math.exp(-nearest / _LANTERN_REACH)))
    return tuple(light)


@lru_cache(8)
def dot_rows(width: int, height: int) -> tuple[tuple[int, ...], ...]:
    """The braille pattern of every cell of rock, row by row: drawn once a size."""
    ridges = skylines(2 * width, 4 * height)
    rows = []
    for y in range(height):
        row = []
        for x in range(width):
            pattern = 0
            for dx in range(2):
                for dy in range(4):
                    if inked(2 * x + dx, 4 * y + dy, 2 * width, 4 * height, ridges):
                        pattern |= _DOTS[dx][dy]
            row.append(pattern)
        rows.append(tuple(row))
    return tuple(rows)


@lru_cache(512)
def path_dots(y: int, width: int, height: int) -> dict[int, int]:
    """The path's dots in row `y`: cell -> braille pattern. Every other dot, like footprints."""
    found: dict[int, int] = {}
    for sub in range(0, 4, 2):
        x = int(path_x((y * 4 + sub) / max(height * 4 - 1, 1), width * 2))
        if 0 <= x // 2 < width:
            found[x // 2] = found.get(x // 2, 0) | _DOTS[x % 2][sub]
    return found


@lru_cache(16)
def rock_style(glow: int) -> Style:
    own = Color.parse(INK).blend(Color.parse(CYAN_BRIGHT), 0.5)
    lit = own.blend(Color.parse(BRONZE_BRIGHT), min(glow / 5, 1.0))
    return Style(color=lit.rich_color)


@lru_cache(4)
def path_style(walked: bool) -> Style:
    return Style(color=Color.parse(BRONZE_BRIGHT if walked else FAINT).rich_color)


@lru_cache(8)
def station_style(state: HallState, here: bool) -> Style:
    colour = {"passed": BRONZE_BRIGHT, "open": SILVER, "sealed": SILVER}[state]
    return Style(color=Color.parse(BRONZE_BRIGHT if here else colour).rich_color, bold=True)


@lru_cache(4)
def leader_style(here: bool) -> Style:
    shade = Color.parse(INK).blend(Color.parse(BRONZE), 0.9 if here else 0.34)
    return Style(color=shade.rich_color)
