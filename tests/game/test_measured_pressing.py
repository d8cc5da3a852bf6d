"""Weights on the press: the events of quantising fold to how far it has come and what it cost."""

from __future__ import annotations

import msgspec
import pytest
from canned_trials import make_result

from engine.messages import Pressed, TrialDone
from engine.quantised import Histogram, LayerError, Quantised
from game.measured import Measured, hear, settled

LIES = Histogram(1, "down", -1.0, 1.0, (1, 2), (0, 3))
ERRORS = tuple(LayerError(0, name, 0.1) for name in ("qkv", "o", "down"))


def pressed(done: int, histogram: Histogram | None = None) -> Pressed:
    return Pressed(1, "candidate", done, 120, LayerError(done // 4, "o", done / 100), histogram)


def test_the_newest_matrix_is_on_the_press_and_the_errors_before_it_are_kept() -> None:
    known = hear(hear(Measured(), pressed(1, LIES)), pressed(7))
    pressing = known.presses["candidate"]
    assert (pressing.done, pressing.total) == (7, 120)
    assert pressing.error == LayerError(1, "o", 0.07)
    assert [error.error for error in pressing.errors] == pytest.approx([0.01, 0.07])
    assert pressing.histogram is LIES, "an event without a histogram takes none away"


def test_a_build_pressed_anew_begins_with_nothing() -> None:
    known = hear(hear(Measured(), pressed(120, LIES)), pressed(1))
    assert known.presses["candidate"].errors == (LayerError(0, "o", 0.01),)
    assert known.presses["candidate"].histogram is None


def test_each_build_has_a_press_of_its_own() -> None:
    other = msgspec.structs.replace(pressed(3), build="reference")
    known = hear(hear(Measured(), pressed(9)), other)
    assert known.presses["candidate"].done == 9
    assert known.presses["reference"].done == 3


def test_a_finished_trial_tells_all_its_errors_and_the_worst_matrix() -> None:
    quantised = Quantised("awq", 4, 5.6, 30.0, False, 4096, 30, 30, ERRORS, LIES)
    result = msgspec.structs.replace(make_result("pendulum", "pass"), quantised=quantised)
    pressing = hear(Measured(), TrialDone(1, result)).presses["candidate"]
    assert pressing.errors == ERRORS and pressing.histogram is LIES and pressing.error is None


def test_a_trial_of_full_weights_pressed_nothing() -> None:
    assert settled(make_result("pendulum", "pass")).presses == {}
