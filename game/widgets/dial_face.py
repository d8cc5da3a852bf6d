"""A logarithmic dial as arithmetic and as a picture: no toolkit, no state."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, floor, log, log10

from rich.cells import cell_len

from game.widgets.canvas import ACROSS, DOWN, Canvas
from game.widgets.figures import plain_number
from game.widgets.ink import Line

# One turn of the arrow: about a quarter more or less, on numbers a person would name.
_STOPS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
ROWS = 6


@dataclass(frozen=True)
class Scale:
    """A log axis from `low` to `high` (both > 0) over `columns` cells."""

    low: float
    high: float
    columns: int

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high:
            raise ValueError(f"a log scale needs 0 < low < high, not {self.low} and {self.high}")
        if self.columns < 2:
            raise ValueError(f"a scale needs at least 2 cells, not {self.columns}")

    @property
    def _span(self) -> int:
        return self.columns * ACROSS - 1

    def dot(self, value: float) -> float:
        """Where `value` stands, in dots from the left; values outside stand at the ends."""
        inside = min(max(value, self.low), self.high)
        return self._span * log(inside / self.low) / log(self.high / self.low)

    def column(self, value: float) -> int:
        return round(self.dot(value)) // ACROSS

    def value(self, column: int) -> float:
        """The value at the middle of a cell: `column(value(c)) == c` for every cell."""
        middle = (column * ACROSS + (ACROSS - 1) / 2) / self._span
        return self.low * exp(middle * log(self.high / self.low))

    def ticks(self) -> list[float]:
        """1, 3, 10, 30 ... inside the scale, its ends included."""
        found = [self.low]
        for power in range(floor(log10(self.low)), floor(log10(self.high)) + 1):
            found += [
                step * 10.0**power
                for step in (1, 3)
                if self.low < step * 10.0**power < self.high * 0.999
            ]
        return [*found, self.high]

    def minor_ticks(self) -> list[float]:
        powers = range(floor(log10(self.low)), floor(log10(self.high)) + 1)
        every = [digit * 10.0**power for power in powers for digit in range(1, 10)]
        return [value for value in every if self.low <= value <= self.high]


def turn(value: float, steps: int, low: float, high: float, fine: bool = False) -> float:
    """`value` moved along the dial: by named stops, or by one in the second figure when fine."""
    for _ in range(abs(steps)):
        value = _fine(value, steps > 0) if fine else _coarse(value, steps > 0)
    return min(max(value, low), high)


def _coarse(value: float, up: bool) -> float:
    power = floor(log10(value))
    stops = [stop * 10.0**exponent for exponent in range(power - 1, power + 2) for stop in _STOPS]
    if up:
        return round(next(stop for stop in stops if stop > value * 1.0001), 9)
    return round(next(stop for stop in reversed(stops) if stop < value * 0.9999), 9)


def _fine(value: float, up: bool) -> float:
    # Going down from an exact power of ten the step is the smaller decade's.
    power = floor(log10(value * (1.0001 if up else 0.9999)))
    step = 10.0 ** (power - 1)
    count = value / step
    moved = floor(count + 1.0001) if up else -floor(-(count - 1.0001))
    return round(moved * step, 9)


@dataclass(frozen=True)
class Reading:
    """What stands on the dial. `close` is the factor about the guess that counts as close.

    `measured_text` and `guess_text` are the words on the needles, ready to read.
    """

    guess: float
    close: float
    guess_text: str
    measured: float | None = None
    measured_text: str = ""


def draw_dial(scale: Scale, reading: Reading, plain: bool = False) -> list[Line]:
    """ROWS lines: the measured needle's words, the guess's words, needles, rail, tick words."""
    canvas = Canvas(scale.columns, ROWS, plain)
    rail = 4 * DOWN
    canvas.line(0, rail, canvas.width - 1, rail, "dim")
    for value in scale.minor_ticks():
        canvas.line(scale.dot(value), rail, scale.dot(value), rail + 1, "dim")
    for value in scale.ticks():
        canvas.line(scale.dot(value), rail, scale.dot(value), rail + 3, "dim")
    _band(canvas, scale, reading, rail)
    guess = scale.dot(reading.guess)
    canvas.line(guess, 2 * DOWN, guess, rail - 1, "bronze", 2)
    if reading.measured is not None:
        _measured(canvas, scale, reading, rail)
    _guess_words(canvas, scale, reading)
    _tick_words(canvas, scale)
    return canvas.lines()


def _band(canvas: Canvas, scale: Scale, reading: Reading, rail: int) -> None:
    left = scale.dot(reading.guess / reading.close)
    right = scale.dot(reading.guess * reading.close)
    canvas.box(left, rail - 2, right + 1, rail + 1, "bronze")


def _measured(canvas: Canvas, scale: Scale, reading: Reading, rail: int) -> None:
    assert reading.measured is not None
    at = scale.dot(reading.measured)
    canvas.line(at, DOWN, at, rail + 3, "silver", 2)
    canvas.write_centred(round(at) // ACROSS, 0, reading.measured_text, "silver")


def _guess_words(canvas: Canvas, scale: Scale, reading: Reading) -> None:
    column = scale.column(reading.guess)
    words = reading.guess_text
    if reading.measured is None:
        canvas.write_centred(column, 1, words, "bronze")
        return
    # The measured needle passes through this row: the words stand on the guess's other side.
    if reading.measured >= reading.guess:
        start = max(column - cell_len(words), 0)
    else:
        start = min(column + 1, scale.columns - cell_len(words))
    canvas.write(start, 1, words, "bronze")


def _tick_words(canvas: Canvas, scale: Scale) -> None:
    free_from = 0
    ticks = scale.ticks()
    last = plain_number(ticks[-1])
    last_start = scale.columns - len(last)
    for value in ticks[:-1]:
        words = plain_number(value)
        start = min(max(scale.column(value) - len(words) // 2, 0), scale.columns - len(words))
        if start >= free_from and start + len(words) < last_start:
            canvas.write(start, 5, words, "dim")
            free_from = start + len(words) + 1
    canvas.write(last_start, 5, last, "dim")
