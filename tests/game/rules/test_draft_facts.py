"""What a scene may say of a build that drafts: facts of canned trials, worked by hand."""

from __future__ import annotations

import pytest
from canned_drafts import FAIR, UNFAIR, make_drafted

from engine.draft_report import Lossless
from engine.metrics import Evidence, point_estimates
from engine.trial import TrialResult
from game.rules.draft_facts import asked_facts, drafted_facts
from story.facts import FACTS, FactValue


def facts(result: TrialResult) -> dict[str, FactValue]:
    return drafted_facts(result, point_estimates(Evidence.of(result)))


def test_what_a_build_asks_for_is_known_before_any_machine_is() -> None:
    assert asked_facts({}) == {"draft_kind": "none", "draft_length": 4, "temperature": 0.0}
    asked = asked_facts({"draft.kind": "self4", "draft.length": 8, "sampling.temperature": 0.7})
    assert asked == {"draft_kind": "self4", "draft_length": 8, "temperature": 0.7}


def test_answers_that_differ_are_not_lossless() -> None:
    told = facts(make_drafted(lossless=Lossless(8, 5, 2, 0.004, 0.01)))
    assert (told["compared"], told["near_ties"], told["lossless"]) == (8, 2, False)


@pytest.mark.parametrize(("drawn", "lossless"), [(FAIR, True), (UNFAIR, False)])
def test_sampled_answers_are_told_by_their_draws(drawn: object, lossless: bool) -> None:
    told = facts(make_drafted(drawn=drawn))  # type: ignore[arg-type]
    assert told["drawn_tokens"] == 384 and told["lossless"] is lossless
    assert told["drawn_percent"] == pytest.approx(56 if lossless else 0.0021)
    assert "compared" not in told and "near_ties" not in told
    assert set(told) <= set(FACTS)


def test_where_nobody_drafts_there_is_nothing_to_tell() -> None:
    told = facts(make_drafted({"draft.kind": "none"}))
    assert set(told) == {"speed_up"}
    assert drafted_facts(None, {}) == {}
