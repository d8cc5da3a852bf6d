"""Footholds and rungs out of records, which are plain JSON and may hold anything."""

from __future__ import annotations

from typing import Any

import pytest

from engine.quality_report import Rung
from game.widgets.footholds import Foothold, footholds_of, rungs_of
from saves.documents import Record

FELL = [{"code": "over_the_cliff", "details": {}}]


def record(
    word: object = "pass",
    metrics: object = None,
    ladder: object = None,
    stage: str = "precision",
    reasons: object = (),
) -> Record:
    verdict: dict[str, Any] = {"word": word, "metrics": metrics, "reasons": reasons}
    result = None if ladder is None else {"ladder": ladder}
    return Record("d", 1, "p", stage, "2026-01-01T00:00:00+00:00", {}, None, verdict, result)


def figures(bits: object, kl: object) -> dict[str, object]:
    return {"average_bits": bits, "kl": kl}


def test_each_trial_is_a_foothold_with_its_fate_oldest_first() -> None:
    records = [
        record("fail", figures(8.1, 0.005)),
        record("fail", figures(2.9, 11.2), reasons=FELL),
        record("inconclusive", figures(5.0, 0.3)),
        record("pass", figures(4.7, 0.117)),
    ]
    assert footholds_of(records, "precision") == (
        Foothold(8.1, 0.005, "missed"),
        Foothold(2.9, 11.2, "fallen"),
        Foothold(5.0, 0.3, "open"),
        Foothold(4.7, 0.117, "met"),
    )


def test_other_halls_and_invalid_trials_are_none() -> None:
    records = [record("invalid", figures(4, 0.1)), record(metrics=figures(4, 0.1), stage="furnace")]
    assert footholds_of(records, "precision") == ()


@pytest.mark.parametrize(
    "metrics",
    [None, [], "x", {}, figures(None, 0.1), figures("4", 0.1), figures(True, 0.1),
     figures(0, 0.1), figures(4, float("nan")), figures(4, float("inf"))],
)  # fmt: skip
def test_what_cannot_be_read_is_no_foothold(metrics: object) -> None:
    assert footholds_of([record(metrics=metrics)], "precision") == ()


def test_the_rungs_are_those_of_the_newest_trial_that_climbed() -> None:
    old = [{"bits": 8, "kl": 1.0, "top1": 0.5}]
    new = [{"bits": 2, "kl": 11.4, "top1": 0.1}, {"bits": 4, "kl": 0.36, "top1": 0.8}]
    records = [record(ladder=old), record(ladder=new), record(ladder=[]), record()]
    assert rungs_of(records, "precision") == (Rung(4, 0.36, 0.8), Rung(2, 11.4, 0.1))
    assert rungs_of(records, "furnace") == ()


@pytest.mark.parametrize("ladder", ["x", 3, [None], [{"bits": "4"}], [{"bits": 4, "kl": None}]])
def test_a_foreign_ladder_has_no_rungs(ladder: object) -> None:
    assert rungs_of([record(ladder=ladder)], "precision") == ()
