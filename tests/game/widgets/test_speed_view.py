"""Speed-up against length: marks and curves stand where the figures say."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from game.rules.draft_costs import DraftCosts
from game.widgets.ink import cells, plain
from game.widgets.speed_view import (
    GUTTER,
    MARKS,
    Curve,
    Speeds,
    SpeedWords,
    draw_speeds,
    measured_curve,
    supposed_curve,
    window_for,
)
from game.widgets.trial_points import Mark, TrialPoint

WORDS = SpeedWords("gain", "k", "none", "goal")
ZH = SpeedWords("加速比", "长度", "1：不赚", "要求 1.25")
ROWS, COLUMNS = 14, 77


def point(length: int, gain: float, mark: Mark = "met") -> TrialPoint:
    return TrialPoint("self4", length, gain, mark)


def drawn(
    speeds: Speeds, columns: int = COLUMNS, rows: int = ROWS, simple: bool = False
) -> list[str]:
    return [plain(line) for line in draw_speeds(speeds, WORDS, columns, rows, simple)]


def expected(
    length: float, gain: float, columns: int = COLUMNS, rows: int = ROWS
) -> tuple[int, int]:
    """By hand: lengths 1 to 16 with a cell and a half of air at each end, gains 0.5 to 2 with 5 %,
    four dots a row, two a column; the last row is the axis."""
    dots_across, dots_down = 2 * (columns - GUTTER) - 1, 4 * (rows - 1) - 1
    across = 3 + log(length) / log(16) * (dots_across - 6)
    down = (1 - log(gain / (0.5 / 1.05)) / log(2 * 1.05 / (0.5 / 1.05))) * dots_down
    return int(across + 0.5) // 2, int(down + 0.5) // 4


@pytest.mark.parametrize(
    "length, gain", [(1, 1.9), (1, 0.55), (2, 1.25), (4, 1.6), (8, 0.7), (16, 1.9), (16, 0.5)]
)
def test_a_trial_stands_where_its_figures_say(length: int, gain: float) -> None:
    lines = drawn(Speeds((point(length, gain), point(3, 1.8, "missed")), ()))
    column, row = expected(length, gain)
    assert lines[row][GUTTER + column] == "o"
    assert sum(line.count("o") for line in lines) == 1 + "none".count("o")


@pytest.mark.parametrize("mark", list(MARKS))
def test_the_fate_is_told_without_colour_and_the_newest_stands_in_parentheses(mark: Mark) -> None:
    text = "\n".join(drawn(Speeds((point(2, 1.9, mark), point(8, 0.6, mark)), ())))
    sign = MARKS[mark][0]
    assert f"({sign})" in text and f" {sign} " in text
    assert text.count(f"({sign})") == 1
    assert len({sign for sign, _ in MARKS.values()}) == len(MARKS)


def test_the_newest_lies_over_an_older_one() -> None:
    lines = drawn(Speeds((point(4, 1.5, "missed"), point(4, 1.5)), ()))
    column, row = expected(4, 1.5)
    assert lines[row][GUTTER + column - 1 : GUTTER + column + 2] == "(o)"


@pytest.mark.parametrize("rows", [4, 8, 14, 30])
def test_no_gain_is_a_broken_line_at_one(rows: int) -> None:
    lines = drawn(Speeds((), ()), rows=rows)
    row = expected(1, 1.0, rows=rows)[1]
    body = lines[row][GUTTER:]
    assert " none " in body and " " in body.replace("none", "").strip()
    assert sum(sign not in " none" for sign in body) > 30
    assert lines[row][: GUTTER - 2].strip() == "1"
    others = [line[GUTTER:] for at, line in enumerate(lines[:-1]) if at != row]
    assert all(line.isspace() for line in others)


def test_the_goal_is_a_line_where_it_has_a_row_of_its_own() -> None:
    high = drawn(Speeds((), (), goal=1.25), rows=14)
    row = expected(1, 1.25)[1]
    assert row != expected(1, 1.0)[1]
    assert " goal " in high[row] and "none" in high[expected(1, 1.0)[1]]
    low = drawn(Speeds((), (), goal=1.25), rows=4)
    assert expected(1, 1.25, rows=4)[1] == expected(1, 1.0, rows=4)[1]
    assert not any("goal" in line for line in low) and any("none" in line for line in low)


def test_curves_are_the_formulas() -> None:
    """At r 1/2 and cost 1/4: 1.5 / 1.25, 1.75 / 1.5, 1.875 / 1.75. With verifying 1.8 over four
    rows, 1.2 over one and 1.4 over two."""
    assert supposed_curve(0.5, 0.25, "", 3).gains == pytest.approx((1.2, 1.75 / 1.5, 1.875 / 1.75))
    costs = DraftCosts(4, 0.25, 1.8)
    assert measured_curve(0.5, costs, 2).gains == pytest.approx((1.5 / 1.45, 1.75 / 1.9))
    assert len(supposed_curve(0.5, 0.25, "").gains) == 16


def test_a_curve_passes_through_each_of_its_lengths() -> None:
    curve = Curve((1.5, 1.9, 1.7, 1.2) + (0.8,) * 12)
    lines = drawn(Speeds((), (curve,)))
    for length, gain in ((1, 1.5), (2, 1.9), (3, 1.7), (4, 1.2), (8, 0.8), (16, 0.8)):
        column, row = expected(length, gain)
        assert lines[row][GUTTER + column] != " ", length
    # Half way between two lengths on the sheet it is half way between their gains.
    column, row = expected((2 * 3) ** 0.5, (1.9 * 1.7) ** 0.5)
    assert lines[row][GUTTER + column] != " "
    assert lines[expected(8, 1.6)[1]][GUTTER + expected(8, 1.6)[0]] == " "


def test_a_measured_curve_meets_the_trial_it_is_of() -> None:
    """Four tokens at 0.25, verifying 1.2, 3.3616 tokens a step (r 0.8): 1.528 times."""
    costs = DraftCosts(4, 0.25, 1.2)
    assert measured_curve(0.8, costs).gains[3] == pytest.approx(3.3616 / 2.2)


def test_curves_are_named_at_their_ends() -> None:
    curves = [supposed_curve(chance, 0.27, f"r{chance}") for chance in (0.3, 0.6, 0.9)]
    text = drawn(Speeds((), curves))
    places = [next(at for at, line in enumerate(text) if f"r{chance}" in line)
              for chance in (0.3, 0.6, 0.9)]  # fmt: skip
    assert places == sorted(places, reverse=True)
    assert all(line.index("r0") > 60 for line in text if "r0" in line)


def test_longer_is_not_better_where_a_draft_costs() -> None:
    """The picture that stands there before any trial: at a quarter of a step each, r 0.6 gains most
    at 2 and loses at 16."""
    gains = supposed_curve(0.6, 0.25, "").gains
    assert gains.index(max(gains)) == 1 and gains[15] < 1 < gains[1]


def test_what_is_drawn_is_in_the_window_and_far_lengths_widen_it() -> None:
    window = window_for(Speeds((point(32, 0.1), point(1, 8.0)), ()), 70, 13)
    assert window.longest == 32 and window.low < 0.1 and window.high > 8.0
    assert window_for(Speeds((point(4, 1e9),), ()), 70, 13).high < 60
    lines = drawn(Speeds((point(4, 1e9), point(2, 1e-9)), ()))
    assert "o" in lines[0] and "(o)" in lines[ROWS - 2]


def test_the_axis_names_lengths_where_they_stand() -> None:
    axis = drawn(Speeds((), ()))[-1]
    assert axis.startswith("k ")
    for length in (1, 2, 3, 4, 6, 8, 12, 16):
        column = GUTTER + expected(length, 1)[0]
        assert axis[column:].startswith(str(length)), length


gains = st.floats(1e-6, 1e6)
trials = st.lists(
    st.builds(TrialPoint, st.just("x"), st.integers(1, 32), gains, st.sampled_from(list(MARKS))),
    max_size=12,
).map(tuple)
shapes = st.lists(
    st.builds(
        supposed_curve, st.floats(0, 1), st.floats(0, 5), st.just("r 0.9"), st.integers(1, 32)
    ),
    max_size=3,
).map(tuple)


@given(trials, shapes, st.sampled_from([None, 0.5, 1.0, 1.25]),
       st.sampled_from([10, 36, 40, 80, 120, 200]), st.integers(2, 40))  # fmt: skip
def test_every_line_has_the_width_asked_for(
    points: tuple[TrialPoint, ...],
    curves: tuple[Curve, ...],
    goal: float | None,
    columns: int,
    rows: int,
) -> None:
    for simple in (False, True):
        lines = draw_speeds(Speeds(points, curves, goal), ZH, columns, rows, simple)
        assert len(lines) == rows
        assert {cells(line) for line in lines} == {columns}
        if simple:
            assert not any("\u2800" <= sign < "\u2900" for line in lines for sign in plain(line))
