"""The dial on the screen: moved by keys, and, once the truth is in, a second needle swings up."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from typing import ClassVar

from textual.timer import Timer

from game.widgets.dial_face import ROWS, Reading, Scale, draw_dial, turn
from game.widgets.drawn import Drawn
from game.widgets.ink import Line

_FRAMES = 18
_FRAME_SECONDS = 1 / 15


def eased(share: float) -> float:
    """0 to 1, fast at first and slow at the end, never past it."""
    return 1 - (1 - min(max(share, 0.0), 1.0)) ** 3


class Dial(Drawn):
    """`value` is always inside [low, high]."""

    DEFAULT_CSS: ClassVar[str] = f"Dial {{ height: {ROWS}; width: 1fr; }}"

    def __init__(self, low: float, high: float, close: float, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.low, self.high, self.close = low, high, close
        self.value = (low * high) ** 0.5
        self.truth: float | None = None
        self._frame = _FRAMES
        self._timer: Timer | None = None
        self._words: Callable[[float], str] = str
        self._truth_words = ""

    def name_values(self, words: Callable[[float], str], truth_words: str = "") -> None:
        """How the needles are labelled, in the language of the moment."""
        self._words, self._truth_words = words, truth_words
        self.refresh()

    def set_value(self, value: float) -> None:
        self.value = min(max(value, self.low), self.high)
        self.refresh()

    def turn(self, steps: int, fine: bool = False) -> None:
        self.set_value(turn(self.value, steps, self.low, self.high, fine))

    def reveal(self, truth: float, moving: bool) -> None:
        """Show the measured needle; where `moving`, it swings in from the guess."""
        self.truth = truth
        self._frame = 0 if moving else _FRAMES
        if moving and self._timer is None:
            self._timer = self.set_interval(_FRAME_SECONDS, self.tick)
        self.refresh()

    def tick(self) -> None:
        self._frame = min(self._frame + 1, _FRAMES)
        if self._frame == _FRAMES and self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.refresh()

    @property
    def needle(self) -> float | None:
        """Where the measured needle points at this frame; in the end, at the truth."""
        if self.truth is None or self._frame >= _FRAMES:
            return self.truth
        share = eased(self._frame / _FRAMES)
        inside = min(max(self.truth, self.low), self.high)
        return exp(log(self.value) + (log(inside) - log(self.value)) * share)

    def draw(self, columns: int, rows: int) -> list[Line]:
        settled = self._frame >= _FRAMES
        reading = Reading(
            guess=self.value,
            close=self.close,
            guess_text=self._words(self.value),
            measured=self.needle,
            measured_text=self._truth_words if settled else "",
        )
        scale = Scale(self.low, self.high, columns)
        return draw_dial(scale, reading, self.plain_glyphs)
