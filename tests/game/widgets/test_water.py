"""The vessel in section: one scale of bytes, and nothing over the rim that was not asked for."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from game.widgets.basin import Entry, draw_account, widest
from game.widgets.ink import cells, plain
from game.widgets.water import GUTTER, Section, Waters, WaterWords, draw_water

WORDS = WaterWords("rim", "over it")
MB = 1e6


def signs(waters: Waters, columns: int = 60, rows: int = 26) -> list[str]:
    """What the vessel holds, one ASCII sign a cell: without walls, and figures beside it."""
    lines = draw_water(waters, columns, rows, WORDS, plain=True)
    return [plain(line)[1 : columns - GUTTER - 1] for line in lines[:-1]]


def test_heights_are_bytes_on_one_scale() -> None:
    """25 lines of 4 dots over 500 MB x 1.12: 100 dots for 560 MB, 0.178571 dots a megabyte."""
    section = Section(Waters(500 * MB, 300 * MB, held=100 * MB, working=20 * MB), 60, 26)
    assert section.floor == 100
    assert section.y(0) == 100
    assert section.y(300 * MB) == 100 - 54  # 53.57 dots
    assert section.y(420 * MB) == 100 - 75
    assert section.y(500 * MB) == 100 - 89  # 89.29
    _, middle, radius = section.orb
    assert 2 * radius + 1 == pytest.approx(300 * 100 / 560)
    assert middle + radius == pytest.approx(section.floor - 1), "the orb lies on the floor"


amounts = st.floats(0, 400 * MB)


@settings(max_examples=60, deadline=None)
@given(amounts, amounts, amounts, amounts, st.integers(24, 90), st.integers(3, 30), st.booleans())
def test_every_picture_fits_its_sheet(
    weights: float,
    held: float,
    empty: float,
    asked: float,
    columns: int,
    rows: int,
    ascii_only: bool,
) -> None:
    waters = Waters(500 * MB, weights, held, 5 * MB, empty, asked, predicted=weights + held)
    lines = draw_water(waters, columns, rows, WORDS, ascii_only)
    assert [cells(line) for line in lines] == [columns] * rows
    if ascii_only:
        assert all(plain(line).isascii() for line in lines)


@given(st.floats(1, 200), st.floats(1, 290))
@example(194.0, 290.0)  # what was asked rises to the topmost line
def test_violet_stands_above_the_rim_only_when_more_was_asked_than_fits(
    held: float, asked: float
) -> None:
    waters = Waters(500 * MB, 300 * MB, held=held * MB, asked=asked * MB)
    assert waters.over == pytest.approx(max(held + asked - 200, 0) * MB, abs=1)
    lines = signs(waters)
    rim = Section(waters, 60, 26).y(500 * MB) // 4
    above = "".join(lines[: max(rim - 1, 0)])
    if waters.over == 0:
        assert "%" not in above and "~" not in above
    figures = "\n".join(plain(line) for line in draw_water(waters, 60, 26, WORDS, True))
    assert ("over it" in figures) == (waters.over > 0 and rim > 1)


def test_water_on_top_of_the_orb_is_the_cache_and_empty_slots_lie_above_it() -> None:
    waters = Waters(500 * MB, 200 * MB, held=100 * MB, empty=100 * MB)
    lines = signs(waters)
    first = {sign: next(at for at, line in enumerate(lines) if sign in line) for sign in ".~O"}
    assert first["."] < first["~"] < first["O"]
    heights = {sign: sum(sign in line for line in lines) for sign in ".~O"}
    # 100 MB are 17.9 dots, 4.5 lines, each of them; the orb twice that.
    assert abs(heights["."] - heights["~"]) <= 1
    assert abs(heights["O"] - heights["."] - heights["~"]) <= 2


def test_what_rises_far_over_the_rim_is_cut_at_the_top_and_told_in_figures() -> None:
    waters = Waters(500 * MB, 300 * MB, held=200 * MB, asked=5000 * MB)
    section = Section(waters, 60, 20)
    assert section.y(waters.top) == 0 and section.y(waters.vessel) > 0
    told = "\n".join(plain(line) for line in draw_water(waters, 60, 20, WORDS))
    assert "+5 GB" in told and "500 MB rim" in told


def test_the_formula_is_a_notch_in_the_walls() -> None:
    without = draw_water(Waters(500 * MB, 300 * MB), 60, 26, WORDS)
    notched = draw_water(Waters(500 * MB, 300 * MB, predicted=450 * MB), 60, 26, WORDS)
    changed = [at for at in range(26) if plain(without[at]) != plain(notched[at])]
    assert changed == [(100 - round(450 * 100 / 560)) // 4]
    assert any(run.ink == "silver" for run in notched[changed[0]])


ENTRIES = (
    Entry("Measured, now"),
    Entry("weights", "326 MB"),
    Entry("working memory", "6 MB", rank=4),
    Entry("tokens held", "8,248", rank=2),
)


def test_an_account_gives_up_its_least_telling_lines_first() -> None:
    assert [plain(line).split("  ")[0] for line in draw_account(ENTRIES, 30, 9)] == [
        "Measured, now", "weights", "working memory", "tokens held",
    ]  # fmt: skip
    three = "\n".join(plain(line) for line in draw_account(ENTRIES, 30, 3))
    assert "working memory" not in three and "tokens held" in three
    two = "\n".join(plain(line) for line in draw_account(ENTRIES, 30, 2))
    assert "tokens held" not in two and "weights" in two


def test_figures_of_an_account_end_in_one_column_and_nothing_is_cut_at_its_own_width() -> None:
    width = widest(ENTRIES)
    lines = draw_account(ENTRIES, width, 9)
    assert {cells(line) for line in lines} == {width}
    assert not any("..." in plain(line) for line in lines)
