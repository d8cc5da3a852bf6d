"""Intervals against their bounds: ordered, inside, and where logarithms put them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from game.rules.verdict import GoalOutcome
from game.widgets.ink import cells, plain
from game.widgets.interval_scale import GoalRow, draw_goal, draw_goals, factor_of, marks

positive = st.floats(1e-3, 1e3)


@st.composite
def outcomes(draw: st.DrawFn) -> GoalOutcome:
    low, measured, high = sorted(draw(st.tuples(positive, positive, positive)))
    op = draw(st.sampled_from([">=", "<="]))
    holds = draw(st.sampled_from([True, False, None]))
    return GoalOutcome("tpot_ratio", op, draw(positive), measured, (low, high), holds)


@given(st.lists(outcomes(), min_size=1, max_size=4), st.integers(16, 90))
def test_marks_are_ordered_and_inside_and_bounds_share_a_column(
    goals: list[GoalOutcome], columns: int
) -> None:
    factor = factor_of(goals)
    found = [marks(goal, factor, columns) for goal in goals]
    for at in found:
        assert 0 <= at.low <= at.measured <= at.high <= columns * 2 - 1
    assert len({round(at.bound, 6) for at in found}) == 1


def test_a_place_is_its_logarithm() -> None:
    """Twice the bound on a scale to four times it is three quarters of the way across."""
    goal = GoalOutcome("tpot_ratio", "<=", 1.6, 3.2, (1.6, 6.4), False)
    at = marks(goal, 4.0, 41)
    assert at.bound == pytest.approx(81 / 2)
    assert at.measured == pytest.approx(81 * 0.75)
    assert (at.low, at.high) == (pytest.approx(81 / 2), pytest.approx(81))


@given(outcomes())
def test_what_is_within_reach_of_the_scale_is_never_cut(goal: GoalOutcome) -> None:
    factor = factor_of([goal])
    for value in (*goal.interval, goal.measured):
        assert factor == 64 or 1 / factor <= value / goal.bound <= factor


def test_a_divergence_of_exactly_zero_stands_at_the_edge() -> None:
    goal = GoalOutcome("kl", "<=", 0.005, 0.0, (0.0, 0.0), True)
    at = marks(goal, factor_of([goal]), 40)
    assert at.low == at.measured == at.high == 0


@given(outcomes(), st.integers(16, 90), st.booleans())
def test_a_line_is_exactly_as_wide_as_asked_and_shows_bound_and_estimate(
    goal: GoalOutcome, columns: int, ascii_only: bool
) -> None:
    row = GoalRow(goal, "TPOT", "<= 1.6 x", "2.3 x", "broken")
    line = draw_goal(row, factor_of([goal]), columns, ascii_only)
    text = plain(line)
    assert cells(line) == columns and "o" in text
    at = marks(goal, factor_of([goal]), columns)
    assert text[round(at.measured) // 2] == "o"
    assert round(at.measured) // 2 == round(at.bound) // 2 or text[round(at.bound) // 2] == "|"


def test_the_side_where_a_goal_holds_is_the_solid_one() -> None:
    for op, solid in ((">=", slice(21, 40)), ("<=", slice(0, 19))):
        goal = GoalOutcome("m", op, 1.0, 1.0, (1.0, 1.0), None)  # type: ignore[arg-type]
        text = plain(draw_goal(GoalRow(goal, "", "", "", ""), math.e, 40))
        other = slice(0, 19) if solid.start else slice(21, 40)
        assert " " not in text[solid] and " " in text[other]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_names_in_both_scripts_stay_aligned(width: int) -> None:
    holds = GoalOutcome("a", ">=", 6, 8.9, (8, 9.8), True)
    broken = GoalOutcome("b", "<=", 1.6, 2.3, (2, 2.6), False)
    rows = [
        GoalRow(holds, "解码吞吐（参照的倍数）", ">= 6 x", "8.9 x", "守住"),
        GoalRow(broken, "TPOT (x reference)", "<= 1.6 x", "2.3 x", "broken"),
    ]
    lines = draw_goals(rows, width, "bound")
    assert len(lines) == 3 and {cells(line) for line in lines[:2]} == {width}
    places = {cell_len(plain(line).split("|")[0]) for line in lines[:2]}
    assert len(places) == 1, "the bounds stand in one column"


def test_what_was_counted_is_a_point_and_what_was_timed_a_bar() -> None:
    """Braille dots of the line's first and fourth row belong to an interval's edges alone."""
    timed = GoalOutcome("tpot_ratio", "<=", 1.6, 1.0, (0.9, 1.1), True)
    counted = GoalOutcome("live_tokens", ">=", 8192, 8256, (8256, 8256), True)

    def edges(goal: GoalOutcome) -> int:
        text = plain(draw_goal(GoalRow(goal, "", "", "", ""), 2.0, 60))
        return sum(bool(ord(sign) - 0x2800 & 0x09) for sign in text if sign >= "\u2800")

    assert edges(timed) == 2 and edges(counted) == 0


def test_a_goal_never_measured_has_a_bound_and_no_place() -> None:
    missing = GoalOutcome("kl", "<=", 0.01, 0.0, (0.0, 0.0), None)
    row = GoalRow(missing, "KL", "<= 0.01", "-", "not measured", measured_at_all=False)
    counted = GoalOutcome("live_tokens", ">=", 8192, 7175, (7175, 7175), False)
    lines = draw_goals([GoalRow(counted, "held", ">= 8,192", "7,175", "broken"), row], 80, "bound")
    assert "o" not in plain(lines[1]).replace("not measured", "") and "|" in plain(lines[1])
    assert "/ 2" in plain(lines[2]), "what was not measured does not stretch the scale"
