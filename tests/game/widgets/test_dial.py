"""The dial: values and cells are one to one, and the arrows stop at numbers people say."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from game.widgets.dial import Dial
from game.widgets.dial_face import ROWS, Reading, Scale, draw_dial, turn
from game.widgets.ink import cells, plain

scales = st.builds(
    lambda low, decades, columns: Scale(low, low * 10**decades, columns),
    st.floats(0.01, 100),
    st.floats(0.5, 6),
    st.integers(8, 160),
)


@given(scales, st.data())
def test_every_cell_has_a_value_that_stands_in_it(scale: Scale, data: st.DataObject) -> None:
    column = data.draw(st.integers(0, scale.columns - 1))
    value = scale.value(column)
    assert scale.column(value) == column
    assert scale.low * 0.999 <= value <= scale.high * 1.001


@given(scales, st.floats(0, 1))
def test_equal_factors_are_equal_distances(scale: Scale, share: float) -> None:
    """The middle of any stretch is its geometric mean."""
    right = scale.low * (scale.high / scale.low) ** share
    middle = math.sqrt(scale.low * right)
    assert scale.dot(middle) == pytest.approx((scale.dot(scale.low) + scale.dot(right)) / 2)


@given(scales)
def test_the_ends_stand_at_the_ends(scale: Scale) -> None:
    assert scale.column(scale.low) == 0 and scale.column(scale.high) == scale.columns - 1
    assert scale.column(scale.low / 9) == 0 and scale.column(scale.high * 9) == scale.columns - 1


def test_a_scale_without_a_span_is_refused() -> None:
    for low, high in ((0, 10), (-1, 10), (5, 5), (9, 3)):
        with pytest.raises(ValueError, match="0 < low < high"):
            Scale(low, high, 40)


def test_the_arrows_walk_through_the_numbers_a_person_would_say() -> None:
    walked = [1.0]
    while walked[-1] < 300:
        walked.append(turn(walked[-1], 1, 1, 300))
    assert walked[:12] == [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12]
    assert walked[-1] == 300
    back = [walked[-1]]
    while back[-1] > 1:
        back.append(turn(back[-1], -1, 1, 300))
    assert back == walked[::-1]


def test_fine_steps_move_the_second_figure_and_come_back() -> None:
    assert turn(18, 1, 1, 300, fine=True) == 19
    assert turn(9.9, 1, 1, 300, fine=True) == 10
    assert turn(10, -1, 1, 300, fine=True) == 9.9
    assert turn(10, 1, 1, 300, fine=True) == 11
    value = 7.3
    for _ in range(40):
        value = turn(value, 1, 1, 300, fine=True)
    for _ in range(40):
        value = turn(value, -1, 1, 300, fine=True)
    assert value == pytest.approx(7.3)


@given(
    st.floats(1, 300),
    st.one_of(st.none(), st.floats(0.2, 900)),
    st.integers(30, 160),
    st.booleans(),
)
def test_the_face_keeps_its_shape(
    guess: float, truth: float | None, columns: int, ascii_only: bool
) -> None:
    reading = Reading(guess, 1.5, "your guess 18 x", truth, "measured 34 x" if truth else "")
    lines = draw_dial(Scale(1, 300, columns), reading, ascii_only)
    assert len(lines) == ROWS and {cells(line) for line in lines} == {columns}
    text = [plain(line) for line in lines]
    assert "your guess 18 x" in text[1]
    assert truth is None or "measured 34 x" in text[0]
    assert text[5].startswith("1 ") and text[5].endswith("300")
    assert not ascii_only or all(line.isascii() for line in text)


def test_needles_stand_over_their_values() -> None:
    scale = Scale(1, 300, 80)
    lines = [plain(line) for line in draw_dial(scale, Reading(10, 1.5, "g", 100, "t"))]
    marks = [column for column, sign in enumerate(lines[2]) if sign != " "]
    assert {scale.column(10), scale.column(100)} <= set(marks)
    assert all(min(abs(m - scale.column(10)), abs(m - scale.column(100))) <= 1 for m in marks)


def test_the_measured_needle_swings_from_the_guess_and_ends_at_the_truth() -> None:
    dial = Dial(1, 300, 1.5)
    dial.set_value(18)
    dial.truth, dial._frame = 34.0, 0
    seen = []
    for _ in range(18):
        seen.append(dial.needle)
        dial._frame += 1
    assert seen[0] == pytest.approx(18)
    assert all(
        a is not None and b is not None and a <= b for a, b in zip(seen, seen[1:], strict=False)
    )
    assert dial.needle == 34.0
