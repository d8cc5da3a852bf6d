"""What a knob may stand at: whole numbers, real numbers or words, read from text and checked."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Value = int | float | str
"""A knob's position."""


class KnobError(ValueError):
    """A setting that cannot be: says what was wrong and the nearest legal value."""


@dataclass(frozen=True)
class IntDomain:
    """Whole numbers in [low, high]; `special` names values outside it, such as 0 = "whole".

    The forge moves along `ladder`; the command line may name any legal number. `only_ladder` says
    that no number between the ladder's is legal.
    """

    low: int
    high: int
    ladder: tuple[int, ...]
    special: Mapping[int, str] = field(default_factory=dict)
    only_ladder: bool = False

    def parse(self, text: str) -> int:
        for value, word in self.special.items():
            if text == word:
                return value
        try:
            value = int(text)
        except ValueError:
            raise KnobError(f"{text!r} is not a whole number; {self.describe()}") from None
        return self.check(value)

    def check(self, value: Value) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise KnobError(f"{value!r} is not a whole number; {self.describe()}")
        if value in self.special:
            return value
        if self.only_ladder:
            legal = [number for number in self.ladder if number not in self.special]
            if value in legal:
                return value
            nearest = min(legal, key=lambda number: abs(number - value))
            raise KnobError(
                f"{value} is not one of its values; {self.describe()}; nearest: {nearest}"
            )
        if self.low <= value <= self.high:
            return value
        nearest = self.low if value < self.low else self.high
        raise KnobError(f"{value} is outside its range; {self.describe()}; nearest: {nearest}")

    def describe(self) -> str:
        words = "".join(f", or {word}" for word in self.special.values())
        if self.only_ladder:
            numbers = [str(number) for number in self.ladder if number not in self.special]
            return f"legal: {', '.join(numbers)}{words}"
        return f"legal: {self.low} to {self.high}{words}"

    def show(self, value: Value) -> str:
        return self.special.get(value, str(value)) if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class RealDomain:
    """Real numbers in [low, high]; `special` gives some of them a word, such as 0 = "greedy"."""

    low: float
    high: float
    ladder: tuple[float, ...]
    special: Mapping[float, str] = field(default_factory=dict)

    def parse(self, text: str) -> float:
        for value, word in self.special.items():
            if text == word:
                return value
        try:
            value = float(text)
        except ValueError:
            raise KnobError(f"{text!r} is not a number; {self.describe()}") from None
        return self.check(value)

    def check(self, value: Value) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise KnobError(f"{value!r} is not a number; {self.describe()}")
        if self.low <= value <= self.high:
            return float(value)
        nearest = self.low if value < self.low else self.high
        raise KnobError(f"{value:g} is outside its range; {self.describe()}; nearest: {nearest:g}")

    def describe(self) -> str:
        words = "".join(f", or {word}" for word in self.special.values())
        return f"legal: {self.low:g} to {self.high:g}{words}"

    def show(self, value: Value) -> str:
        if isinstance(value, str):
            return value
        return self.special.get(value, f"{value:g}")


@dataclass(frozen=True)
class WordDomain:
    words: tuple[str, ...]

    @property
    def ladder(self) -> tuple[str, ...]:
        return self.words

    def parse(self, text: str) -> str:
        return self.check(text)

    def check(self, value: Value) -> str:
        if isinstance(value, str) and value in self.words:
            return value
        raise KnobError(
            f"{value!r} is not one of its words; legal: {', '.join(self.words)}"
            f"; nearest: {nearest_name(str(value), self.words)}"
        )

    def describe(self) -> str:
        return f"legal: {', '.join(self.words)}"

    def show(self, value: Value) -> str:
        return str(value)


Domain = IntDomain | RealDomain | WordDomain


def nearest_name(word: str, names: Iterable[str]) -> str:
    """The legal name closest in spelling: never empty while `names` is not."""
    pool = sorted(names)
    return difflib.get_close_matches(word, pool, n=1, cutoff=0.0)[0]
