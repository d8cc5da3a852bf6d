"""How a hall's knobs are laid out in the forge, and the stops that each can be turned to."""

from __future__ import annotations

from collections.abc import Sequence

from engine.domains import Value
from engine.knobs import KNOBS

FEW_KNOBS = 4
_TALL_ROWS = 34
_BESIDE_GOALS, _BESIDE_PIECE = 13, 22
"""Rows that a hall with more knobs keeps for what stands under them, without and with a picture."""


def knob_rows(count: int, height: int, short: bool) -> int:
    """Lines a knob has to itself on a screen of `height` rows: two and a gap, two, or one where a
    hall has many of them."""
    if count <= FEW_KNOBS:
        return 2 if short else 3
    room = height - (_BESIDE_PIECE if height >= _TALL_ROWS else _BESIDE_GOALS)
    if 3 * count - 1 <= room:
        return 3
    return 2 if 2 * count <= room else 1


def ladder_with(name: str, value: Value) -> tuple[Value, ...]:
    """A knob's stops; a position off its ladder (a hint's) has a stop of its own."""
    ladder: tuple[Value, ...] = tuple(KNOBS[name].domain.ladder)
    return ladder if value in ladder else _with_stop(ladder, value)


def _with_stop(ladder: Sequence[Value], value: Value) -> tuple[Value, ...]:
    """The ladder and one stop more, in order where its values are numbers."""
    numbers = [stop for stop in (*ladder, value) if isinstance(stop, int | float)]
    return tuple(sorted(numbers)) if len(numbers) > len(ladder) else (*ladder, value)
