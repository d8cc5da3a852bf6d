"""Dots become the braille signs Unicode names for them; words keep the cells aligned."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from game.widgets.canvas import Canvas, join
from game.widgets.ink import cells, plain

# Unicode numbers a cell's dots 1-3 down the left, 4-6 down the right, then 7 and 8 beneath.
NUMBER = {(0, 0): 1, (0, 1): 2, (0, 2): 3, (1, 0): 4, (1, 1): 5, (1, 2): 6, (0, 3): 7, (1, 3): 8}
dots = st.sets(st.sampled_from(sorted(NUMBER)), min_size=1)


@given(dots)
def test_a_cell_is_the_sign_unicode_names_for_its_dots(marked: set[tuple[int, int]]) -> None:
    canvas = Canvas(1, 1)
    for x, y in marked:
        canvas.dot(x, y, "text")
    numbers = "".join(str(NUMBER[place]) for place in sorted(marked, key=lambda p: NUMBER[p]))
    assert unicodedata.name(join(canvas.lines())) == f"BRAILLE PATTERN DOTS-{numbers}"


@given(
    st.integers(1, 30),
    st.lists(st.tuples(st.integers(-5, 40), st.text("ab 中文é界", max_size=12)), max_size=6),
)
def test_every_line_is_exactly_as_wide_as_the_sheet(
    columns: int, words: list[tuple[int, str]]
) -> None:
    canvas = Canvas(columns, 3)
    canvas.line(0, 0, columns * 2, 11, "wall", 3)
    for number, (column, text) in enumerate(words):
        canvas.write(max(column, 0), number % 3, text, "text")
    for line in canvas.lines():
        assert cells(line) == columns


@given(st.integers(1, 30), st.text("abc 中文界", max_size=20), st.integers(0, 29))
def test_words_are_cut_at_whole_signs(columns: int, text: str, start: int) -> None:
    canvas = Canvas(columns, 1)
    canvas.write(start, 0, text, "text")
    (line,) = canvas.lines()
    assert cell_len(plain(line)) == columns


def test_drawing_outside_the_sheet_is_clipped() -> None:
    canvas = Canvas(3, 2)
    canvas.line(-50, -50, 90, 90, "text", 5)
    canvas.box(-9, -9, 99, 99, "text")
    canvas.disc(-3, 4, 6, "text")
    assert all(
        unicodedata.name(sign).startswith("BRAILLE")
        for sign in join(canvas.lines())
        if sign != "\n"
    )


def test_a_plain_sheet_uses_ascii_alone() -> None:
    canvas = Canvas(24, 8, plain=True)
    canvas.line(0, 0, 47, 31, "text", 3)
    canvas.disc(30, 10, 6, "text")
    canvas.box(2, 20, 9, 30, "text")
    drawn = join(canvas.lines())
    assert drawn.isascii() and drawn.strip()


def test_a_stroke_has_both_its_ends() -> None:
    canvas = Canvas(20, 5)
    canvas.line(3, 2, 31, 17, "text")
    assert canvas.has_dot(3, 2) and canvas.has_dot(31, 17)
