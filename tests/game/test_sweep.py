"""A sweep: the grid it runs, the rows it keeps, the front it finds, the chart it draws."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree

import pytest
from canned_trials import make_result, make_verdict
from hypothesis import given
from hypothesis import strategies as st

from game.outcome import Outcome, SessionInputError
from game.rules.verdict import Verdict
from game.sweep import Axis, Row, SweepError, axes_of, document, front_of, grid, parse_axis, sweep
from game.sweep_plot import draw, plotted
from story.loader import load_stages

PENDULUM = next(stage for stage in load_stages() if stage.id == "pendulum")
KNOBS = PENDULUM.knobs


def verdict(word: str = "pass", **metrics: float) -> Verdict:
    return Verdict(
        word=word,
        goals=(),
        metrics=metrics,
        bound_by="bandwidth",
        bound_share=0.5,
        phase_bounds={},
        reasons=(),
        advice=(),
        crowns=(),
        pairs_used=8,
        noise_cv=0.01,
    )


def row(word: str, speed: float, memory: float, kl: float, batch: int = 1) -> Row:
    figures = {"decode_throughput_ratio": speed, "memory_bytes": memory, "kl": kl}
    return Row({"schedule.batch": batch}, verdict(word, **figures))


def test_a_range_names_a_knob_by_its_ending_and_its_values_in_order():
    assert parse_axis("batch=4,1,2,4", KNOBS) == Axis("schedule.batch", (4, 1, 2))
    assert parse_axis("run.precision=bfloat16", KNOBS) == Axis("run.precision", ("bfloat16",))
    assert parse_axis("prefill_chunk=whole,512", KNOBS) == Axis("schedule.prefill_chunk", (0, 512))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("batch", "knob=a,b,c"),
        ("batch=", "knob=a,b,c"),
        ("batch=1,,2", "knob=a,b,c"),
        ("=1", "knob=a,b,c"),
        ("bacth=1", "schedule.batch"),
        ("batch=1,0", "nearest: 1"),
        ("precision=bf16", "bfloat16"),
    ],
)
def test_a_range_that_cannot_be_says_what_can(text, said):
    with pytest.raises(SweepError, match=said):
        parse_axis(text, KNOBS)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_the_grid_holds_every_combination_once(sizes):
    names = ("schedule.batch", "schedule.prefill_chunk", "run.precision")
    axes = [Axis(name, tuple(range(1, size + 1))) for name, size in zip(names, sizes, strict=False)]
    builds = grid(axes, 27)
    wanted = set(itertools.product(*(axis.values for axis in axes)))
    assert {tuple(build.values()) for build in builds} == wanted
    assert len(builds) == len(wanted)


def test_a_grid_over_its_limit_says_how_large_it_is():
    with pytest.raises(SweepError, match=r"12 builds.*--limit 12"):
        grid([Axis("a", (1, 2, 3)), Axis("b", (1, 2, 3, 4))], 11)
    assert len(grid([Axis("a", (1, 2, 3)), Axis("b", (1, 2, 3, 4))], 12)) == 12


def test_no_range_and_a_knob_named_twice_are_refused():
    with pytest.raises(SweepError, match="--over"):
        grid([], 8)
    with pytest.raises(SweepError, match="twice"):
        grid([Axis("a", (1,)), Axis("a", (2,))], 8)


async def test_a_refused_build_is_a_row_and_the_sweep_goes_on():
    async def run(build):
        if build["schedule.batch"] == 2:
            raise SessionInputError("two is not company here")
        return Outcome(
            stage="pendulum",
            build=build,
            verdict=make_verdict("pass"),
            result=make_result("pendulum"),
            record=None,
            guess=None,
            debt_before=0,
            debt_after=0,
        )

    builds = [{"schedule.batch": size} for size in (1, 2, 4)]
    rows = [found async for found in sweep(builds, run)]
    assert [found.word for found in rows] == ["pass", "refused", "pass"]
    assert rows[1].refused == "two is not company here"
    assert rows[1].result is None


def test_the_front_is_what_no_other_row_beats():
    rows = (
        row("fail", 1.0, 700.0, 0.0),  # least memory
        row("pass", 8.0, 900.0, 0.001),  # fastest
        row("pass", 7.0, 950.0, 0.001),  # beaten by the one before
        row("invalid", 99.0, 1.0, 0.0),  # not believed
        Row({"schedule.batch": 64}, refused="no"),
    )
    axes = axes_of(PENDULUM, rows)
    assert axes == ("decode_throughput_ratio", "memory_bytes", "kl")
    assert front_of(rows, axes) == {0, 1}


def test_a_row_without_one_of_the_figures_is_not_compared():
    rows = (row("pass", 8.0, 900.0, 0.001), Row({"a": 1}, verdict("fail", memory_bytes=1.0)))
    assert front_of(rows, axes_of(PENDULUM, rows)) == {0}
    assert front_of((), axes_of(PENDULUM, ())) == frozenset()


def test_the_document_names_every_row_and_the_front():
    rows = (row("pass", 8.0, 9e8, 0.001, 8), Row({"schedule.batch": 64}, refused="too many"))
    told = document(PENDULUM, [Axis("schedule.batch", (8, 64))], {"run.precision": "x"}, 7, rows)
    assert told["over"] == {"schedule.batch": [8, 64]}
    assert told["fixed"] == {"run.precision": "x"}
    assert told["seed"] == 7
    first, second = told["rows"]
    assert (first["verdict"], first["front"], first["refused"]) == ("pass", True, None)
    assert (second["verdict"], second["front"], second["refused"]) == (
        "refused", False, "too many",
    )  # fmt: skip


def say(key: str, **values: object) -> str:
    return f"{key} {values}" if values else key


def marks_of(file) -> dict[str, int]:
    """Points drawn, by verdict, counted in the file itself."""
    svg = "{http://www.w3.org/2000/svg}"
    root = ElementTree.parse(file).getroot()
    named = ("points-", "rings-")
    groups = [group for group in root.iter(f"{svg}g") if group.get("id", "").startswith(named)]
    return {group.get("id"): len(list(group.iter(f"{svg}use"))) for group in groups}


def test_the_chart_holds_a_mark_for_every_measured_row(tmp_path):
    rows = (
        row("pass", 8.0, 9e8, 0.001, 8),
        row("pass", 6.0, 8e8, 0.001, 6),
        row("fail", 1.0, 7e8, 0.0, 1),
        row("invalid", 5.0, 7e8, 0.0, 2),
        Row({"schedule.batch": 64}, refused="no"),
    )
    up, points = plotted(PENDULUM, rows)
    assert up == "decode_throughput_ratio"
    assert points == [(0, 900.0, 8.0), (1, 800.0, 6.0), (2, 700.0, 1.0)]
    file = tmp_path / "sweep.svg"
    draw(file, PENDULUM, rows, say)
    assert marks_of(file) == {"points-pass": 2, "points-fail": 1, "rings-front": 3}


def test_equal_sweeps_give_equal_files_and_foreign_text_stays_text(tmp_path):
    rows = (Row({"schedule.batch": "$x_1$ <b>\x1b[31m"}, row("pass", 8.0, 9e8, 0.0).verdict),)
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    for file in (first, second):
        draw(file, PENDULUM, rows, say)
    assert first.read_bytes() == second.read_bytes()
    words = "".join(ElementTree.parse(first).getroot().itertext())
    assert "$x_1$ <b>" in words
    assert "\x1b" not in words


def test_a_sweep_that_measured_nothing_still_draws_and_says_so(tmp_path):
    file = tmp_path / "none.svg"
    draw(file, PENDULUM, (Row({"a": 1}, refused="no"),), say)
    assert "sweep.plot.nothing" in "".join(ElementTree.parse(file).getroot().itertext())
