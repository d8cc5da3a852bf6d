"""Weights being quantised, in words: which matrix is done, and how far it came out."""

from __future__ import annotations

from collections.abc import Callable

from engine.messages import Pressed
from game.widgets.figures import plain_number
from game.widgets.weight_rows import EMBEDDING, matrix_words

Say = Callable[..., str]
PRESSING = frozenset({"quantising", "calibrating"})
"""Phases in which matrices come out of the press; what was pressed is forgotten after them."""


def pressed_words(say: Say, pressed: Pressed, layers: int) -> str:
    """The matrix that is done, its layer counted from 1, its error in per cent."""
    error = pressed.error
    share = plain_number(error.error * 100)
    if error.layer == EMBEDDING:
        return say("trial.pressing.embedding", share=share)
    matrix, layer = matrix_words(say, error.name), error.layer + 1
    return say("trial.pressing.error", layer=layer, layers=layers, matrix=matrix, share=share)
