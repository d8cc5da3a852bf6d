"""The rods swing as the data says: periods in the measured ratio, fans as the time spent."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from game.measured import Rates
from game.widgets.ink import cells, plain
from game.widgets.pendulum import FRAME_SECONDS, Pendulum, Twin
from game.widgets.swing import SLOW_PERIOD, WIDEST, Rhythm, Rod, angle, draw_rods, exposure

cost = st.floats(1e-6, 10.0)


@given(cost, cost)
def test_periods_stand_in_the_measured_ratio(prefill: float, decode: float) -> None:
    rhythm = Rhythm(prefill, decode)
    fast, slow = rhythm.periods
    assert slow / fast == pytest.approx(decode / prefill)
    assert rhythm.ratio == pytest.approx(decode / prefill)
    assert max(fast, slow) == pytest.approx(SLOW_PERIOD)


def test_a_time_that_cannot_be_is_refused() -> None:
    for prefill, decode in ((0.0, 1.0), (1.0, -2.0), (math.nan, 1.0)):
        with pytest.raises(ValueError, match="positive time"):
            Rhythm(prefill, decode)


@given(st.floats(0, 50), st.floats(0.01, 5))
def test_a_fan_is_all_of_the_shutters_time(phase: float, swept: float) -> None:
    assert sum(exposure(phase, swept)) == pytest.approx(1.0)


@given(st.floats(0, 3))
def test_a_whole_swing_gives_the_arcsine_law(phase: float) -> None:
    """The share of time a harmonic motion spends between a and b is (asin b - asin a) / pi."""
    rays = 8
    found = exposure(phase, 1.0, rays)
    for ray, spent in enumerate(found):
        left, right = 2 * ray / rays - 1, 2 * (ray + 1) / rays - 1
        law = (math.asin(right) - math.asin(left)) / math.pi
        assert spent == pytest.approx(law, abs=0.035)


def test_a_rod_is_still_at_its_turns_and_fastest_in_the_middle() -> None:
    assert angle(0) == pytest.approx(WIDEST) and angle(0.5) == pytest.approx(-WIDEST)
    assert angle(0.25) == pytest.approx(0, abs=1e-9)
    near_turn, near_middle = angle(0) - angle(0.01), angle(0.24) - angle(0.25)
    assert near_middle > 10 * near_turn


def twin(prefill: float | None, decode: float | None) -> Twin:
    return Twin(Rates(prefill, decode), ("prefill",), ("decode",), ("34 x",))


@given(cost, cost, st.integers(1, 200))
def test_after_any_time_the_phases_stand_in_the_inverse_ratio(
    prefill: float, decode: float, frames: int
) -> None:
    widget = Pendulum()
    widget.twins, widget.pace = (twin(prefill, decode),), "free"
    for _ in range(frames):
        widget.tick()
    fast, slow = widget._phases[(0, "prefill")], widget._phases[(0, "decode")]
    assert fast / slow == pytest.approx(decode / prefill)
    slowest = frames * FRAME_SECONDS["free"] / SLOW_PERIOD
    assert min(fast, slow) == pytest.approx(slowest)


@given(cost, cost, cost, cost)
def test_two_builds_share_one_stretch_of_time(a: float, b: float, c: float, d: float) -> None:
    widget = Pendulum()
    widget.twins = (twin(a, b), twin(c, d))
    first, second = widget.period(0, "decode"), widget.period(1, "prefill")
    assert first is not None and second is not None
    assert first / second == pytest.approx(b / c)


def test_while_a_clock_runs_it_moves_twice_a_second() -> None:
    assert FRAME_SECONDS["timed"] == 0.5 and FRAME_SECONDS["free"] <= 1 / 15


def test_an_unmeasured_rod_hangs_straight_down() -> None:
    widget = Pendulum()
    widget.twins, widget.pace = (twin(None, None),), "free"
    widget.tick()
    assert widget.period(0, "decode") is None and widget._phases == {}
    rod = widget._rod(0, "prefill")
    assert rod.phase is None and rod.ink == "bronze"
    lines = draw_rods([rod], 40, 12, ())
    columns = [
        column for line in lines[2:8] for column, sign in enumerate(plain(line)) if sign != " "
    ]
    assert max(columns) - min(columns) <= 6


@settings(max_examples=40)
@given(st.floats(0, 9), st.floats(0, 2), st.integers(24, 130), st.integers(4, 40), st.booleans())
def test_the_picture_keeps_its_size(
    phase: float, swept: float, columns: int, rows: int, ascii_only: bool
) -> None:
    rods = [
        Rod(phase, swept, "bronze", 4.0, ("预填充", "0.5 ms")),
        Rod(phase / 3, swept / 3, "wall", 1.0, ("decode", "16 ms")),
    ]
    lines = draw_rods(rods, columns, rows, ("34 x", "reference"), ascii_only)
    assert len(lines) == rows and {cells(line) for line in lines} == {columns}
