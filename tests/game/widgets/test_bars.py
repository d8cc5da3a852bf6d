"""Bars, stops and the order of runs: as long as what they measure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.machine import Ceilings
from engine.trial import Work
from game.roof_points import floors
from game.widgets.abba import draw_order, letters, place_of
from game.widgets.bars import Part, draw_bar, draw_stack, fill_dots, stack_edges
from game.widgets.figures import size
from game.widgets.ink import cells, plain
from game.widgets.knob_row import KnobRow, Stop, draw_knob
from game.widgets.price_panel import PriceWords, VesselWords, draw_memory, draw_phase, draw_vessel


@given(st.floats(0, 1), st.integers(1, 200))
def test_a_bar_is_its_share_to_half_a_dot_and_never_lies_at_the_ends(
    share: float, columns: int
) -> None:
    dots = fill_dots(share, columns)
    assert abs(dots - share * columns * 2) <= 1
    assert (dots == 0) == (share == 0)
    assert (dots == columns * 2) == (share == 1)
    assert cells(draw_bar(share, columns, "wall")) == columns


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=5), st.integers(20, 120))
def test_a_stack_ends_where_the_sum_stands(amounts: list[float], columns: int) -> None:
    parts = [Part(amount, "wall") for amount in amounts]
    whole = max(sum(amounts), 1.0)
    found = stack_edges(parts, whole, columns)
    assert found == sorted(found) and found[-1] <= columns * 2
    assert abs(found[-1] - sum(amounts) / whole * columns * 2) <= 0.5 + len(amounts)
    for amount, left, right in zip(amounts, [0, *found], found, strict=False):
        assert amount == 0 or right > left or right == columns * 2, "no part is drawn as nothing"
    (line,) = draw_stack(parts, whole, columns)
    assert cells(line) == columns


def test_runs_come_in_the_order_a_b_b_a() -> None:
    assert letters(4) == "ABBAABBA"
    for done, order, place in ((0, "A", 0), (0, "B", 1), (1, "B", 2), (1, "A", 3), (2, "A", 4)):
        assert place_of(done, order) == place and letters(8)[place] == order
    assert place_of(3, "") is None


@given(st.integers(0, 31), st.sampled_from(["A", "B", ""]), st.integers(20, 120))
def test_the_run_on_the_clock_is_always_in_sight(done: int, order: str, width: int) -> None:
    text = plain(draw_order(done, 32, order, width))
    assert len(text) <= width
    assert ("[" in text) == (order != "")
    assert order == "" or f"[{order}]" in text


@given(st.integers(0, 6), st.integers(20, 70), st.booleans())
def test_the_set_stop_is_always_shown_and_lines_are_exact(
    place: int, width: int, chosen: bool
) -> None:
    stops = [Stop(str(2**power), barred=power == 3) for power in range(7)]
    lines = draw_knob(KnobRow("批量 batch", "turns live", stops, place, chosen), width)
    assert [cells(line) for line in lines] == [width, width]
    assert f"[{2**place}]" in plain(lines[1])
    assert plain(lines[0]).startswith(">" if chosen else " ")


CEILINGS = Ceilings(20e9, {"float32": 0.4e12, "bfloat16": 2e12}, 5e-6)
WORDS = PriceWords(
    "Memory",
    {"weights": "weights", "kv": "KV"},
    "step",
    "prefill",
    {"bandwidth": "bytes", "compute": "operations", "launch": "calls"},
    "at least",
    "ceilings not measured",
)


def test_the_least_time_of_a_phase_is_its_hardest_limit() -> None:
    """538 MB over 20 GB/s is 26.9 ms; 2 GFLOP over 0.4 TFLOP/s is 5 ms; 1,000 calls are 5 ms."""
    work = Work(538e6, 2e9, 1000)
    least = floors(work, CEILINGS, "float32")
    assert (least.bandwidth, least.compute, least.launch) == pytest.approx((0.0269, 0.005, 0.005))
    assert least.seconds == pytest.approx(0.0269) and least.limit == "bandwidth"
    text = [plain(line) for line in draw_phase("step", work, CEILINGS, "float32", WORDS, 44)]
    assert text[0].endswith("at least 26.9 ms")
    assert "538 MB" in text[1] and "26.9 ms" in text[1] and "2 G" in text[2]


def test_without_ceilings_a_price_has_counts_and_no_times() -> None:
    lines = draw_phase("step", Work(538e6, 2e9, 1000), None, "float32", WORDS, 44)
    text = "\n".join(plain(line) for line in lines)
    assert "ceilings not measured" in text and "538 MB" in text and "ms" not in text


def test_memory_names_every_part_and_the_sum() -> None:
    lines = draw_memory({"weights": 269_000_000, "kv": 3_500_000}, 272_500_000, WORDS, 40)
    text = "\n".join(plain(line) for line in lines)
    assert "272 MB" in text and "weights 269 MB" in text and "KV 3.5 MB" in text


PARTS = {"weights": 300, "kv": 120, "activations": 20, "scratch": 0}
OF = VesselWords(of="440 of 500", over="over the rim")


@given(st.integers(0, 2000), st.integers(30, 120), st.booleans())
def test_the_rim_is_always_on_the_bar_and_violet_only_beyond_it(
    asked: int, width: int, ascii_only: bool
) -> None:
    lines = draw_vessel(PARTS, asked, 500, WORDS, OF, width, ascii_only)
    head, bar, *figures = lines
    assert cells(bar) == width and plain(bar).count("|") >= 1
    over = 440 + asked > 500
    assert (head[-1].ink == "danger") == over
    assert any(run.ink == "spill" for run in bar) == over
    told = "  ".join(plain(line) for line in figures)
    assert (f"over the rim {size(asked - 60)}" in told) == over


def test_the_rim_stands_where_the_budget_is() -> None:
    """500 of 540 in all: 92.6 % of 100 cells."""
    _, bar, *_ = draw_vessel(PARTS, 0, 500, WORDS, OF, 100)
    assert abs(plain(bar).index("|") - 92.6) <= 1
    filled = plain(bar).replace("⠄", " ").rstrip().rstrip("|").rstrip()
    assert abs(len(filled) - 440 / 540 * 100) <= 1
