"""The cliff: every foothold stands where its figures say, and its fate is told by its sign."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.quality_report import Rung
from game.widgets.cliff_view import GUTTER, MARKS, RUNG, Cliff, CliffWords, draw_cliff, window_for
from game.widgets.footholds import Foothold, Hold
from game.widgets.ink import cells, plain

WORDS = CliffWords("KL", "bits", "gone", "goals")
ZH = CliffWords("KL", "位数", "1：过此便没了意思", "要求：<= 5 位")
RUNGS = tuple(Rung(bits, kl, 0.5) for bits, kl in ((8, 0.005), (4, 0.36), (3, 1.63), (2, 11.4)))
losses = st.floats(0, 100, allow_nan=False)
holds = st.sampled_from(list(MARKS))
feet = st.lists(st.builds(Foothold, st.floats(1.5, 40), losses, holds), max_size=12).map(tuple)


def drawn(cliff: Cliff, columns: int = 77, rows: int = 11, words: CliffWords = WORDS) -> list[str]:
    return [plain(line) for line in draw_cliff(cliff, words, columns, rows)]


def expected(bits: float, kl: float, columns: int, rows: int) -> tuple[int, int]:
    """By hand: bits 16 to 2 with 6 % of air, losses 0.003 to 30, four dots a row, two a column."""
    wide, narrow = 16 * 1.06, 2 / 1.06
    across = log(wide / bits) / log(wide / narrow) * (2 * columns - 1)
    down = log(kl / 0.003) / log(30 / 0.003) * (4 * rows - 1)
    return int(across + 0.5) // 2, int(down + 0.5) // 4


@pytest.mark.parametrize("bits, kl", [(16.0, 0.003), (5.6, 0.09), (4.5, 0.36), (2.3, 11.0)])
def test_a_foothold_stands_where_its_figures_say(bits: float, kl: float) -> None:
    newest = Foothold(12.0, 30.0, "missed")
    lines = drawn(Cliff((Foothold(bits, kl, "met"), newest), (), 1.0), 77, 11)
    column, row = expected(bits, kl, 70, 10)
    assert lines[row][GUTTER + column] == "o"
    assert sum(line.count("o") for line in lines) == 1 + "gone".count("o")


def test_fewer_bits_are_further_right_and_greater_losses_lower() -> None:
    window = window_for(Cliff((), RUNGS, 1.0), 70, 10)
    places = [window.place(rung.bits, rung.kl) for rung in RUNGS]
    assert places == sorted(places)
    assert [y for _, y in places] == sorted(y for _, y in places)


@pytest.mark.parametrize("hold", list(MARKS))
def test_the_fate_is_told_without_colour_and_the_newest_stands_in_brackets(hold: Hold) -> None:
    older, newest = Foothold(6.0, 0.02, hold), Foothold(4.5, 5.0, hold)
    text = "\n".join(drawn(Cliff((older, newest), (), 1.0)))
    sign = MARKS[hold][0]
    assert f"({sign})" in text and f" {sign} " in text
    assert len({sign for sign, _ in MARKS.values()}) == len(MARKS)


def test_without_rungs_there_is_no_rock() -> None:
    bare = drawn(Cliff((), (), 1.0))
    assert RUNG not in "".join(bare)
    body = [line[GUTTER:] for line in bare[:-1]]
    edge = expected(16, 1.0, 70, 10)[1]
    assert all(line.isspace() for row, line in enumerate(body) if row != edge)


def test_every_rung_is_marked_and_the_face_runs_between_them() -> None:
    lines = drawn(Cliff((), RUNGS, 1.0))
    for rung in RUNGS:
        column, row = expected(rung.bits, rung.kl, 70, 10)
        assert lines[row][GUTTER + column] == RUNG
    # Half way between 8 and 4 bits in logarithms, the face is half way between their losses.
    column, row = expected((8 * 4) ** 0.5, (0.005 * 0.36) ** 0.5, 70, 10)
    assert lines[row][GUTTER + column] != " "
    left = [line[GUTTER : GUTTER + expected(8, 1, 70, 10)[0]] for line in lines[:6]]
    assert all(line.isspace() for line in left), "left of the widest rung nothing was measured"


def test_the_goals_corner_lies_to_the_right_of_its_bits_and_above_its_loss() -> None:
    lines = drawn(Cliff((), (), 1.0, goal_kl=0.3, goal_bits=5.0), rows=21)
    column, row = expected(5, 0.3, 70, 20)
    assert all(lines[at][GUTTER + column] != " " for at in range(row + 1))
    assert lines[row + 1][GUTTER + column] == " "
    assert lines[row][GUTTER + column - 2] == " "
    assert lines[row][-1] != " " or lines[row][-2] != " "
    assert "goals" in lines[0]


def test_the_axis_names_bits_where_they_stand() -> None:
    axis = drawn(Cliff((), (), 1.0))[-1]
    for bits in (16, 8, 4, 3, 2):
        column = GUTTER + expected(bits, 1, 70, 10)[0]
        assert axis[column:].startswith(str(bits)), bits


@given(feet, st.booleans(), st.integers(30, 140), st.integers(4, 30))
def test_every_line_has_the_width_asked_for(
    footholds: tuple[Foothold, ...], rock: bool, columns: int, rows: int
) -> None:
    cliff = Cliff(footholds, RUNGS if rock else (), 1.0, 0.3, 5.0)
    for simple in (False, True):
        lines = draw_cliff(cliff, ZH, columns, rows, simple)
        assert len(lines) == rows
        assert {cells(line) for line in lines} == {columns}
