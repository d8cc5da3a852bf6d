"""Loss along the text: columns as high as their loss, over the positions they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from game.widgets.ink import cells, plain
from game.widgets.position_view import GUTTER, draw_positions


def test_columns_are_as_high_as_their_loss() -> None:
    lines = [plain(line) for line in draw_positions((4.0, 2.0, 1.0, 0.0), 64, "at", 48, 9)]
    heights = [
        sum(line[GUTTER + 10 * number + 4] != " " for line in lines[:8]) for number in range(4)
    ]
    assert heights == [8, 4, 2, 0]


def test_the_axes_name_the_largest_loss_and_the_last_position() -> None:
    lines = [plain(line) for line in draw_positions((0.25, 0.5), 128, "at", 60, 7)]
    assert lines[0].split()[0] == "0.5" and lines[5].split()[0] == "0"
    assert lines[-1].split() == ["0", "128", "at", "256"]
    assert lines[-1].index("128") == GUTTER + (60 - GUTTER) // 2


@given(st.lists(st.floats(0, 30), min_size=1, max_size=64), st.integers(30, 130),
       st.integers(4, 20), st.booleans())  # fmt: skip
def test_the_picture_has_its_size(
    losses: list[float], columns: int, rows: int, simple: bool
) -> None:
    lines = draw_positions(losses, 64, "位置（token）", columns, rows, simple)
    assert len(lines) == rows and {cells(line) for line in lines} == {columns}
