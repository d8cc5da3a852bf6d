"""Points out of records, which are plain JSON and may hold anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from canned_drafts import PLAZA, make_drafted
from canned_trials import plain

from game.rules.judge import judge
from game.widgets.trial_points import TrialPoint, trial_points
from saves.documents import Record
from story.schema import Stage

STAGE = Stage("plaza", 7, True, build=PLAZA)
FIGURES: dict[str, object] = {
    "tpot_ratio": 0.5, "acceptance_rate": 0.62, "acceptance_length": 3.48,
    "break_even_length": 2.2, "draft_time_share": 0.4,
}  # fmt: skip


def record(
    build: object = None, word: object = "pass", metrics: object = FIGURES, stage: str = "plaza"
) -> Record:
    verdict: dict[str, Any] = {"word": word, "metrics": metrics}
    return Record("d", 1, "p", stage, "2026-01-01T00:00:00+00:00", cast(Any, build), None, verdict,
                  None)  # fmt: skip


def points(*records: Record) -> tuple[TrialPoint, ...]:
    return trial_points(records, STAGE)


def kind(name: object, length: object = 4) -> dict[str, object]:
    return {"draft.kind": name, "draft.length": length}


def test_each_trial_is_a_point_with_its_fate_oldest_first() -> None:
    found = points(
        record(kind("ngram", 8), "fail", {"tpot_ratio": 2}),
        record(kind("exit"), "inconclusive", {"tpot_ratio": 0.8}),
        record(kind("self4"), "pass"),
    )
    assert found == (
        TrialPoint("ngram", 8, 0.5, "missed"),
        TrialPoint("exit", 4, 1.25, "open"),
        TrialPoint("self4", 4, 2.0, "met", 0.62, 3.48, 2.2, 0.4),
    )


def test_what_the_build_leaves_open_is_the_halls_then_the_knobs() -> None:
    (by_hall,) = points(record({}))
    assert (by_hall.kind, by_hall.length) == ("ngram", 8)
    (by_knob,) = trial_points([record(kind("self8") | {})], Stage("plaza", 7, True))
    assert (by_knob.kind, by_knob.length) == ("self8", 4)
    (bare,) = trial_points([record({"draft.kind": "exit"})], Stage("plaza", 7, True))
    assert (bare.kind, bare.length) == ("exit", 4)


def test_other_halls_invalid_trials_and_those_where_nobody_drafted_are_none() -> None:
    assert points(record(word="invalid"), record(stage="loom"), record(kind("none"))) == ()


@pytest.mark.parametrize("metrics", [
    None, [], "x", {}, {"tpot_ratio": None}, {"tpot_ratio": "0.5"}, {"tpot_ratio": True},
    {"tpot_ratio": 0}, {"tpot_ratio": -1.0}, {"tpot_ratio": float("nan")},
    {"tpot_ratio": float("inf")}, {"tpot_ratio": 5e-324}, {"tpot_ratio": 10**400},
])  # fmt: skip
def test_without_a_speed_up_there_is_no_point(metrics: object) -> None:
    assert points(record(kind("self4"), metrics=metrics)) == ()


@pytest.mark.parametrize("build", [
    kind("wizard"), kind(None), kind(3), kind("self4", "4"), kind("self4", 0), kind("self4", 99),
    kind("self4", True), kind(["self4"]),
])  # fmt: skip
def test_a_build_that_cannot_be_is_no_point(build: object) -> None:
    assert points(record(build)) == ()


@pytest.mark.parametrize("build", [None, [], "x"])
def test_a_foreign_build_is_the_halls(build: object) -> None:
    assert [point.kind for point in points(record(build))] == ["ngram"]


@pytest.mark.parametrize("word", [None, 3, [], {}, "won"])
def test_a_foreign_word_is_no_verdict(word: object) -> None:
    assert points(record(kind("self4"), word)) == ()


@pytest.mark.parametrize(
    "value", [None, "0.5", True, float("nan"), float("inf"), -0.5, 10**400, []]
)
def test_a_figure_that_cannot_be_read_is_left_open(value: object) -> None:
    figures = {name: value for name in FIGURES} | {"tpot_ratio": 0.5}
    (point,) = points(record(kind("self4"), metrics=figures))
    assert point == TrialPoint("self4", 4, 2.0, "met")
    assert point.costs is None and point.chance is None


def test_a_verdict_that_is_none_has_no_points() -> None:
    odd = Record("d", 1, "p", "plaza", "", {}, None, cast(Any, None), None)
    assert points(odd) == ()


def test_costs_and_chance_are_those_of_the_figures() -> None:
    """A step of 2.2 of which 5/11 drafted four tokens: 0.25 each, 1.2 to verify. 1 + r + r^2 = 1.75
    at r = 1/2, whether the mean step or the share of accepted tokens says so: 0.75 of 2."""
    point = TrialPoint("self4", 4, 1.5, "met", None, None, 2.2, 5 / 11)
    assert point.costs is not None and point.chance is None
    assert (point.costs.token, point.costs.verify) == pytest.approx((0.25, 1.2))
    assert replace(point, length=2, step_tokens=1.75).chance == pytest.approx(0.5)
    assert replace(point, length=2, acceptance_rate=0.375).chance == pytest.approx(0.5)


def test_a_real_record_is_read() -> None:
    result = make_drafted()
    verdict = judge(result, result.spec.bounds)
    kept = Record("d", 1, "p", "plaza", "", dict(result.spec.build), None, plain(verdict), None)
    (point,) = points(kept)
    assert (point.kind, point.length, point.mark) == ("self4", 4, "met")
    assert point.step_tokens == pytest.approx(3.49)
    assert point.break_even_length == pytest.approx(2.2, rel=0.02)
    assert point.speed_up == pytest.approx(47 / (13 * 2.2), rel=0.01)  # 47 tokens in 13 steps
