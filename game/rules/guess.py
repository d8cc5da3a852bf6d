"""The sealed guess: read from text, and scored when the measurement is in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from engine.domains import nearest_name
from engine.metrics import METRICS
from saves.documents import GuessRecord
from story.schema import Guess

RIGHT, WRONG = 1.0, 0.0
_NUMBER = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\d\s.]*)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
UNITS: Mapping[str, tuple[str, ...]] = {
    "x": ("x", "×", "倍", "times"),
    "MB": ("MB", "mb", "M", "兆"),
    "%": ("%", "％", "percent"),
}
"""How a dial's unit may be written after the number; the first is how it is shown."""


class GuessError(ValueError):
    """A guess that cannot be: says what was wrong and what would be right."""


def score(guess: float | str, truth: float | str | None, rule: Guess) -> GuessRecord:
    """How far `guess` was from what was measured.

    On a dial the error is a ratio, max(guess / truth, truth / guess), so that twice too much and
    half too little weigh the same; a guess within `rule.close` is close. A choice is right
    (factor 1) or wrong (factor 0). `truth` None, or a number no ratio can be taken to, leaves the
    guess unscored.

    Raises:
        GuessError: `guess` is none of the choices, or not a positive number.
    """
    value = check_guess(guess, rule)
    if rule.kind == "choice":
        if not isinstance(truth, str):
            return GuessRecord(value, None, None, None)
        return GuessRecord(value, truth, RIGHT if value == truth else WRONG, value == truth)
    assert isinstance(value, float)
    if not isinstance(truth, int | float) or not math.isfinite(truth) or truth <= 0:
        return GuessRecord(value, None, None, None)
    factor = max(value / truth, truth / value)
    return GuessRecord(value, float(truth), factor, factor <= rule.close)


def check_guess(guess: float | str, rule: Guess) -> float | str:
    """The guess as it is sealed: one of the choices, or a float on the dial.

    Raises:
        GuessError: names what is legal.
    """
    if rule.kind == "choice":
        if isinstance(guess, str) and guess in rule.choices:
            return guess
        raise GuessError(f"{guess!r} is none of the choices; {_legal_choices(rule)}")
    if isinstance(guess, bool) or not isinstance(guess, int | float):
        raise GuessError(f"{guess!r} is not a number; {_legal_dial(rule)}")
    if not math.isfinite(guess) or not rule.low <= guess <= rule.high:
        raise GuessError(f"{guess:g} is not on the dial; {_legal_dial(rule)}")
    return float(guess)


def parse_guess(text: str, rule: Guess) -> float | str:
    """A guess as typed: `18`, `18x`, `1.8e1`, `47 MB`; or a choice's id, its letter or its number.

    Raises:
        GuessError: names what is legal, and for a misspelt choice the nearest.
    """
    word = text.strip()
    if rule.kind == "dial":
        match = _NUMBER.fullmatch(_THOUSANDS.sub("", word))
        if match is None or match[2] not in ("", *UNITS.get(dial_unit(rule), ())):
            raise GuessError(f"{text!r} is not a number; {_legal_dial(rule)}")
        return check_guess(float(match[1]), rule)
    folded = word.casefold().replace("_", " ")
    for choice in rule.choices:
        if folded == choice.casefold().replace("_", " "):
            return choice
    place = _place(folded)
    if place is not None and place < len(rule.choices):
        return rule.choices[place]
    nearest = nearest_name(word, rule.choices)
    raise GuessError(f"{text!r} is none of the choices; {_legal_choices(rule)}; nearest: {nearest}")


def _place(word: str) -> int | None:
    """`a` or `1` -> 0, `b` or `2` -> 1."""
    if len(word) == 1 and "a" <= word <= "z":
        return ord(word) - ord("a")
    if word.isascii() and word.isdigit() and 0 < int(word) <= 99:
        return int(word) - 1
    return None


def dial_unit(rule: Guess) -> str:
    """The unit of a dial's number: `x`, `MB`, `%`; "" where it has none."""
    return METRICS[rule.metric].unit if rule.metric in METRICS else ""


def _legal_dial(rule: Guess) -> str:
    unit = dial_unit(rule)
    written = f"18{' ' if unit.isalpha() and len(unit) > 1 else ''}{unit}"
    example = f"18 or {written}" if unit in UNITS else "18"
    return f"legal: a number from {rule.low:g} to {rule.high:g}, for example {example}"


def _legal_choices(rule: Guess) -> str:
    listed = ", ".join(f"{chr(ord('a') + i)} = {name}" for i, name in enumerate(rule.choices))
    return f"legal: {listed}"
