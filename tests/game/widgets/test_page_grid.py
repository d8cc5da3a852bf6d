"""The field of blocks: every block has its place, and the legend counts single blocks."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cache_plan import CachePlan
from engine.config import CacheConfig
from engine.page_map import CELL_SIGNS, Cell, PageMap
from game.load_figures import BuildFigures
from game.widgets.ink import cells, plain
from game.widgets.page_grid import CELLS, GLYPH, draw_legend, draw_pages, lay_out, place_cell
from game.widgets.paging_piece import mean_map, planned_map, slot_blocks

fields = st.text(st.sampled_from(list(CELL_SIGNS.values())), min_size=1, max_size=400)
WORDS: dict[Cell, str] = {cell: cell for cell in CELLS}


def test_every_kind_of_block_has_a_sign_and_an_ink() -> None:
    assert set(CELLS) == set(get_args(Cell)) == set(GLYPH)
    glyphs = [glyph for glyph, _ in GLYPH.values()]
    assert len(set(glyphs)) == len(glyphs), "colour is never the only sign"


@given(fields, st.integers(10, 120), st.integers(1, 30), st.integers(0, 50))
def test_the_field_fits_its_sheet(signs: str, columns: int, rows: int, group: int) -> None:
    pages = PageMap("paged", 16, signs, 0, 0)
    lines = draw_pages(pages, columns, rows, group=group)
    assert len(lines) <= rows
    assert all(cells(line) <= columns + 1 for line in lines), "the last gap may stand outside"


@given(fields, st.integers(20, 120), st.integers(1, 30), st.integers(0, 50))
def test_each_block_is_drawn_once_while_there_is_a_place_for_it(
    signs: str, columns: int, rows: int, group: int
) -> None:
    layout = lay_out(len(signs), columns, rows, group)
    if layout.each > 1:
        return
    lines = draw_pages(PageMap("paged", 16, signs, 0, 0), columns, rows, plain=True, group=group)
    drawn = "".join(plain(line) for line in lines).replace(" ", "")
    area = layout.width * layout.high
    for cell, sign in CELL_SIGNS.items():
        assert drawn.count(sign) == area * signs.count(sign), cell


def test_a_slot_begins_a_line_of_its_own() -> None:
    slot = "F" * 5 + "t" + "r" * 4
    lines = draw_pages(PageMap("contiguous", 16, slot * 3, 0, 0), 12, 3, plain=True, group=10)
    assert [plain(line) for line in lines] == [slot] * 3


def test_with_too_few_places_each_stands_for_several_blocks() -> None:
    layout = lay_out(1000, 20, 5)
    assert layout.each == 10
    pages = PageMap("paged", 1, "F" * 900 + "." * 100, 0, 0)
    lines = draw_pages(pages, 20, 5, plain=True)
    assert "".join(plain(line) for line in lines) == "F" * 90 + "." * 10
    assert place_cell("FFt") == "full" and place_cell("F..") == "free"
    assert place_cell("Ft") == "full", "of two as many, the fuller"


def test_a_new_copy_is_marked_at_both_ends() -> None:
    pages = PageMap("paged", 16, "S" * 20, 320, 320, 1, ((3, 17),))
    (line,) = draw_pages(pages, 20, 1, fresh=((3, 17),), plain=True)
    text = plain(line)
    assert text[3] == "o" and text[17] == "*" and text.count("S") == 18


@given(fields, fields)
def test_the_legend_counts_the_blocks_of_both_fields(left: str, right: str) -> None:
    maps = [PageMap("paged", 16, signs, 0, 0) for signs in (left, right)]
    lines = draw_legend(maps, WORDS, 60)
    assert all(cells(line) <= 60 for line in lines)
    told = "  ".join(plain(line) for line in lines)
    for cell, sign in CELL_SIGNS.items():
        counts = f"{cell} {left.count(sign)} | {right.count(sign)}"
        assert (counts in told) == (sign in left + right)


CONTIGUOUS = CachePlan("contiguous", 688, 3, 0, 16, 23_040)
PAGED = CachePlan("paged", 688, 0, 142, 16, 23_040)


def test_a_planned_pool_is_free_and_as_large_as_the_formula_says() -> None:
    assert slot_blocks(CONTIGUOUS) == 43 and slot_blocks(PAGED) == 0
    assert planned_map(CONTIGUOUS).cells == "." * 129
    assert planned_map(PAGED).cells == "." * 142
    assert planned_map(PAGED).reserved_tokens == 0


@given(st.floats(0, 1))
def test_a_planned_pool_of_blocks_holds_its_share_and_sets_nothing_aside(filled: float) -> None:
    pages = planned_map(PAGED, filled)
    assert pages.count("full") + pages.count("free") == 142 and pages.reserved_tokens == 0
    assert abs(pages.count("full") - filled * 142) <= 0.5


@given(st.floats(0.02, 1))
def test_a_supposed_share_fills_that_share_of_every_slot(filled: float) -> None:
    pages = planned_map(CONTIGUOUS, filled)
    assert pages.count("full") + pages.count("reserved") == 129 and pages.count("free") == 0
    assert abs(pages.count("full") / 129 - filled) <= 0.5 / 43 + 1e-9
    assert pages.use == pytest.approx(filled, abs=1 / 2064)


def test_means_of_a_load_are_as_large_on_the_field_as_they_were() -> None:
    """960 of 1,600 tokens set aside, in a pool of 2,272: 60 blocks, 40 more, 42 free."""
    found = BuildFigures((), 80.0, 0.6, 0.0, 0.0, 0, 0, 2, 7, 5.0, 960.0, 1600.0)
    pages = mean_map(found, CacheConfig(layout="paged", block_size=16), 2272)
    assert (pages.count("full"), pages.count("reserved"), pages.count("free")) == (60, 40, 42)
    assert pages.use == pytest.approx(0.6) and pages.layout == "paged"
