"""The roofline: the roof from two ceilings, points where their logarithms put them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from game.widgets.ink import cells, plain
from game.widgets.roof import Frame, Point, Roof, RoofWords, draw_roof, frame_for

WORDS = RoofWords("operations a byte", "operations a second", "bandwidth", "arithmetic")
ROOF = Roof(bandwidth=22e9, peak=2.3e12)


def test_both_ceilings_meet_at_the_ridge() -> None:
    assert ROOF.ridge == pytest.approx(2.3e12 / 22e9)
    assert ROOF.reach(ROOF.ridge) == pytest.approx(ROOF.peak)
    assert ROOF.reach(0.5) == pytest.approx(11e9)
    assert ROOF.reach(1e6) == ROOF.peak


@given(st.floats(0.01, 1e4), st.floats(1e6, 1e14), st.integers(20, 150), st.integers(6, 50))
def test_a_point_stands_in_the_cell_its_logarithms_name(
    intensity: float, rate: float, columns: int, rows: int
) -> None:
    frame = Frame((0.01, 1e4), (1e6, 1e14), columns, rows)
    column, row = frame.cell(intensity, rate)
    across = (math.log(intensity) - math.log(0.01)) / (math.log(1e4) - math.log(0.01))
    up = (math.log(rate) - math.log(1e6)) / (math.log(1e14) - math.log(1e6))
    assert abs(column - across * (columns - 0.5)) <= 1
    assert abs(row - (1 - up) * (rows - 0.25)) <= 1


@given(
    st.lists(
        st.builds(
            Point,
            st.sampled_from("PDpd"),
            st.floats(0.2, 900),
            st.floats(1e8, 3e12),
            st.just("bronze"),
        ),
        max_size=4,
        unique_by=lambda point: point.mark,
    ),
    st.integers(50, 150),
    st.integers(10, 40),
    st.booleans(),
)
def test_every_mark_is_shown_once_and_the_sheet_keeps_its_size(
    points: list[Point], columns: int, rows: int, ascii_only: bool
) -> None:
    lines = draw_roof([ROOF], points, columns, rows, RoofWords("", "", "", ""), ascii_only)
    assert len(lines) == rows and {cells(line) for line in lines} == {columns}
    text = "".join(plain(line)[9:] for line in lines[1:-2])
    for point in points:
        assert text.count(point.mark) == 1


def test_marks_stand_where_the_frame_says() -> None:
    points = [Point("P", 60, 1.4e12, "bronze"), Point("D", 0.5, 9e9, "wall")]
    frame = frame_for([ROOF], points, 71, 17)
    text = [plain(line) for line in draw_roof([ROOF], points, 80, 20, WORDS)]
    for point in points:
        column, row = frame.cell(point.intensity, point.rate)
        assert text[row + 1][column + 9] == point.mark


def test_a_phase_that_gains_intensity_moves_to_the_right() -> None:
    """Batch 1, 4, 16: the same bytes, more operations on each."""
    columns = []
    for batch in (1, 4, 16):
        points = [Point("D", 0.5 * batch, 9e9 * batch, "wall"), Point("P", 60, 1.4e12, "bronze")]
        lines = [plain(line) for line in draw_roof([ROOF], points, 80, 20, WORDS)]
        columns.append(next(line.index("D") for line in lines if "D" in line))
    assert columns == sorted(columns) and len(set(columns)) == 3


def test_axes_are_named_in_words() -> None:
    text = "\n".join(plain(line) for line in draw_roof([ROOF], [], 80, 20, WORDS))
    for words in ("operations a byte", "operations a second", "bandwidth", "arithmetic"):
        assert words in text
