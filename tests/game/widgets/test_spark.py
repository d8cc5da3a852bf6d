"""Small columns: heights worked out by hand on a sheet eight dots high."""

from __future__ import annotations

import math

import pytest

from game.widgets.ink import cells, plain
from game.widgets.spark import column_dots, draw_spark


@pytest.mark.parametrize(
    ("value", "dots"), [(1.0, 8), (0.5, 4), (0.25, 2), (0.001, 1), (0.0, 1), (math.inf, 8)]
)
def test_a_column_is_as_high_as_its_share_of_the_largest(value: float, dots: int) -> None:
    assert column_dots(value, 1.0) == dots


def test_columns_stand_apart_where_there_is_room() -> None:
    upper, lower = (plain(line) for line in draw_spark([0.5, 1.0, 0.25], 20))
    assert upper == "   ⣿⣿   " and lower == "⣿⣿ ⣿⣿ ⣤⣤"


def test_a_narrow_place_keeps_the_first_and_never_overflows() -> None:
    lines = draw_spark([1.0] * 30, 12, plain=True)
    assert [cells(line) for line in lines] == [12, 12]
    assert plain(lines[0]) == "#" * 12


def test_nothing_is_drawn_of_nothing() -> None:
    assert draw_spark([], 20) == []
