"""The press: columns stand where the weights are, and the grid's levels are evenly apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.quantised import Histogram
from game.widgets.ink import Line, cells, plain
from game.widgets.press import columns_of, draw_levels, draw_press, level_places, tallest

counted = st.lists(st.integers(0, 10_000), min_size=1, max_size=80).map(tuple)


def texts(lines: list[Line]) -> list[str]:
    return [plain(line) for line in lines]


def inked(lines: list[Line], column: int) -> int:
    """How many of the lines have a sign at this cell."""
    return sum(text[column] != " " for text in texts(lines))


def test_the_tallest_column_is_where_most_weights_are() -> None:
    lies = Histogram(0, "down", -2.0, 2.0, (0, 1, 5, 20, 5, 1, 0, 0), (0,) * 8)
    # Gutter "b" and a gap: 3 cells. 8 steps over 16 cells: step 3 is cells 9 and 10.
    lines = draw_press(lies, ["b"], ["a"], 19, 11)
    heights = [inked(lines[:5], column) for column in range(3, 19)]
    assert heights[6] == heights[7] == 5 == max(heights)
    assert heights[4] == heights[5] == 2, "5 of 20 on 20 dots are 5 dots: the second cell begun"
    assert heights[0] == heights[1] == heights[14] == 0


def test_after_hangs_only_where_the_grid_has_levels() -> None:
    after = tuple(50 if step % 4 == 2 else 0 for step in range(16))
    lies = Histogram(0, "down", -1.0, 1.0, (4,) * 16, after)
    lines = draw_press(lies, ["b"], ["a"], 35, 9)
    # 16 steps over 32 cells: step s is cells 3 + 2s and 4 + 2s.
    at = [3 + 2 * step + side for step in (2, 6, 10, 14) for side in (0, 1)]
    for column in range(3, 35):
        assert inked(lines[5:], column) == (4 if column in at else 0), column
        assert inked(lines[:4], column) == 4, "before is level everywhere"


def test_the_axis_between_has_the_least_zero_and_the_largest() -> None:
    lies = Histogram(0, "o", -0.5, 1.5, (1,) * 8, (1,) * 8)
    axis = texts(draw_press(lies, ["b"], ["a"], 43, 9))[4]
    assert axis[3:].startswith("-0.5") and axis.endswith("1.5")
    assert axis.index("0", 8) == 3 + 10, "a quarter of the 40 cells from the left"


def test_a_single_weight_is_never_drawn_as_nothing() -> None:
    lies = Histogram(0, "o", 0.0, 1.0, (1, 100_000), (100_000, 1))
    lines = draw_press(lies, ["b"], ["a"], 13, 9)
    assert inked(lines[:4], 4) == 1 and inked(lines[5:], 12) == 1


@given(counted, st.integers(1, 200))
def test_no_weight_is_lost_between_steps_and_columns(counts: tuple[int, ...], dots: int) -> None:
    found = columns_of(counts, dots)
    assert sum(column.count for column in found) == sum(counts)
    assert found[0].left == 0 and found[-1].right == dots
    assert all(column.right > column.left for column in found)


@given(counted, st.integers(6, 130), st.integers(3, 30), st.booleans())
def test_the_picture_has_its_size(
    counts: tuple[int, ...], columns: int, rows: int, simple: bool
) -> None:
    lies = Histogram(0, "o", -1.0, 1.0, counts, counts[::-1])
    lines = draw_press(lies, ["压之前", "十六位"], ["压之后"], columns, rows, simple)
    assert len(lines) == rows
    assert {cells(line) for line in lines} == {columns}
    assert not simple or all(
        ord(sign) < 128 or sign in "压之前十六位后" for sign in "".join(texts(lines))
    )


def test_the_share_of_the_fullest_step() -> None:
    assert tallest((1, 6, 3)) == pytest.approx(0.6)
    assert tallest((0, 0)) == 0


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_the_empty_grid_has_two_to_the_bits_grooves(bits: int) -> None:
    lines = draw_levels(1 << bits, ("least", "largest"), False, 60, 4)
    grooves = [sign for sign in texts(lines)[2] if sign != " "]
    assert len(grooves) == 1 << bits


def test_levels_are_evenly_apart_from_end_to_end() -> None:
    assert level_places(4, 10) == [0, 3, 6, 9]
    places = level_places(16, 100)
    gaps = [right - left for left, right in zip(places, places[1:], strict=False)]
    assert (places[0], places[-1]) == (0, 99) and max(gaps) - min(gaps) <= 1


def test_zero_of_a_symmetric_grid_stands_on_a_level() -> None:
    # Three bits: -4 ... 3 steps, 0 is the fifth of eight levels, 4/7 of the way.
    top, *rest = texts(draw_levels(8, ("-4 x", "3 x"), True, 70, 3))
    assert top.index("0") == 39, "dot 79 of 0 ... 139"
    assert rest[0][39] != " "
