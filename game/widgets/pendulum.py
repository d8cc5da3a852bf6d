"""The Twin Pendulum, swinging: the only picture here that moves, and only at measured speeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from textual.timer import Timer

from game.measured import Rates
from game.widgets.drawn import Drawn
from game.widgets.ink import Line
from game.widgets.swing import SLOW_PERIOD, Rod, draw_rods

Pace = Literal["still", "timed", "free"]
"""still: one picture. timed: 2 Hz, while a clock runs. free: 15 Hz."""

FRAME_SECONDS: dict[Pace, float] = {"still": 0.0, "timed": 0.5, "free": 1 / 15}
PAIR_COLUMNS = 44
"""Cells that one pair of rods needs beside another."""


@dataclass(frozen=True)
class Twin:
    """One build's pair of rods and the words beneath each (name, then figures)."""

    rates: Rates
    prefill_words: Sequence[str]
    decode_words: Sequence[str]
    middle: Sequence[str]


class Pendulum(Drawn):
    """Shows one pair of rods, or two side by side where there is room for both.

    All rods share one stretch of time, so that any two of them can be compared. The first twin
    is the one that stays when there is room for a single pair.
    """

    DEFAULT_CSS: ClassVar[str] = "Pendulum { height: 1fr; width: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.twins: Sequence[Twin] = ()
        self.pace: Pace = "still"
        self._phases: dict[tuple[int, str], float] = {}
        self._timer: Timer | None = None

    def show(self, twins: Sequence[Twin]) -> None:
        """New measurements. Each rod goes on from its phase at its new speed."""
        self.twins = tuple(twins)
        self.refresh()

    def set_pace(self, pace: Pace) -> None:
        if pace == self.pace and (self._timer is not None or pace == "still"):
            return
        self.pace = pace
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if pace != "still" and self.is_attached:
            self._timer = self.set_interval(FRAME_SECONDS[pace], self.tick)
        self.refresh()

    def on_mount(self) -> None:
        pace, self.pace = self.pace, "still"
        self.set_pace(pace)

    def tick(self) -> None:
        """One frame's time goes by: every rod runs on by its share of its period."""
        seconds = FRAME_SECONDS[self.pace]
        for number in range(len(self.twins)):
            for phase in ("prefill", "decode"):
                period = self.period(number, phase)
                if period:
                    key = (number, phase)
                    self._phases[key] = self._phases.get(key, 0.0) + seconds / period
        self.refresh()

    def period(self, number: int, phase: str) -> float | None:
        """Seconds of one full swing on the screen; None where nothing was measured."""
        own = self._cost(self.twins[number], phase)
        costs = [
            cost
            for twin in self.twins
            for cost in (twin.rates.prefill, twin.rates.decode)
            if cost is not None
        ]
        return None if own is None else SLOW_PERIOD * own / max(costs)

    @staticmethod
    def _cost(twin: Twin, phase: str) -> float | None:
        return twin.rates.prefill if phase == "prefill" else twin.rates.decode

    def draw(self, columns: int, rows: int) -> list[Line]:
        pairs = min(len(self.twins), 2 if columns >= 2 * PAIR_COLUMNS else 1)
        if pairs == 0:
            return []
        width = columns // pairs
        drawn = [
            draw_rods(
                [self._rod(number, "prefill"), self._rod(number, "decode")],
                width if number < pairs - 1 else columns - width * (pairs - 1),
                rows,
                self.twins[number].middle,
                self.plain_glyphs,
            )
            for number in range(pairs)
        ]
        return [sum((lines[row] for lines in drawn), ()) for row in range(rows)]

    def _rod(self, number: int, phase: Literal["prefill", "decode"]) -> Rod:
        period = self.period(number, phase)
        twin = self.twins[number]
        seconds = FRAME_SECONDS[self.pace]
        swept = seconds / period if period else 0.0
        # At rest a measured rod stands at its turn: it has a speed, and is not moving now.
        at = self._phases.get((number, phase), 0.0) if period else None
        if phase == "prefill":
            return Rod(at, swept, "bronze", 4.0, twin.prefill_words)
        return Rod(at, swept, "wall", 1.0, twin.decode_words)
