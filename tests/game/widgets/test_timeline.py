"""A request in time: stretches where their times put them, and none of it lost."""

from __future__ import annotations

import pytest
from canned_trials import make_config, make_sample
from hypothesis import given, settings
from hypothesis import strategies as st

from game.widgets.ink import cells, plain
from game.widgets.timeline import Spell, draw_timeline, edges, nice_step, spells

stretches = st.lists(st.floats(0, 5).map(lambda s: Spell("decode", s)), min_size=1, max_size=80)


@given(stretches, st.integers(10, 400))
def test_edges_never_go_back_and_stand_within_half_a_dot(parts: list[Spell], dots: int) -> None:
    found = edges(parts, dots)
    total = sum(part.seconds for part in parts)
    assert found[0] == 0 and found == sorted(found)
    if total > 0:
        elapsed = 0.0
        for part, edge in zip(parts, found[1:], strict=True):
            elapsed += part.seconds
            assert abs(edge - dots * elapsed / total) <= 0.5 + 1e-6
        assert found[-1] == dots


def test_a_run_is_laid_out_whole() -> None:
    sample = make_sample(make_config({"workload.output": 32}))
    parts = spells(sample)
    assert [part.phase for part in parts[:2]] == ["other", "prefill"]
    assert len(parts) == 2 + 31, "every decode step has a stretch of its own"
    assert sum(part.seconds for part in parts) == pytest.approx(sample.wall_seconds)


def test_wide_steps_end_in_a_gap_each() -> None:
    parts = [Spell("prefill", 1.0), *[Spell("decode", 1.0)] * 7]
    (top, *_) = (plain(line) for line in draw_timeline(parts, 80, True))
    assert top[:10].strip("#") == ""
    row = [plain(line) for line in draw_timeline(parts, 80, True)][2]
    assert row[10:].count("|") >= 7


@settings(max_examples=30)
@given(stretches, st.integers(20, 160), st.booleans())
def test_the_band_keeps_its_size(parts: list[Spell], columns: int, ascii_only: bool) -> None:
    lines = draw_timeline(parts, columns, ascii_only)
    assert len(lines) == 5 and {cells(line) for line in lines} == {columns}


@given(st.floats(1e-6, 1e4), st.integers(2, 12))
def test_ticks_are_round_numbers_and_not_too_many(total: float, wanted: int) -> None:
    step = nice_step(total, wanted)
    assert total / step <= wanted * 1.0001
    assert f"{step:e}"[0] in "125"


def test_a_run_under_way_fills_only_the_part_that_ran() -> None:
    parts = [Spell("prefill", 1.0)]
    row = plain(draw_timeline(parts, 40, True, total=4.0)[0])
    assert row[:10] == "#" * 10 and row[10:].strip() == ""
