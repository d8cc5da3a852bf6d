"""The judge on floods, on what a cache held, and on served loads whose outcome is known."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from canned_memory import FULL_TOKEN, make_hold
from canned_memory_verdicts import FLOOD_DETAILS, abyss_verdict, paging_verdict
from canned_serving import make_serve, stretched
from canned_trials import Case, at_fault

from engine.trial import Bound, Fault, LoadPair, TrialResult
from game.rules.judge import judge, truth
from game.rules.verdict import EXIT_CODE, Verdict
from game.trial_record import record_of, result_of, verdict_of
from story.loader import load_stages
from story.schema import Stage

STAGES = {stage.id: stage for stage in load_stages()}
ABYSS, PAGING = STAGES["abyss"], STAGES["paging"]


def judged(result: TrialResult, stage: Stage) -> Verdict:
    crowns = [(crown.name, crown.metric, crown.op, crown.bound) for crown in stage.crowns]
    return judge(result, stage.goals, crowns)


def codes(verdict: Verdict) -> list[str]:
    return [remark.code for remark in (*verdict.reasons, *verdict.advice)]


@pytest.mark.parametrize(
    ("case", "word"),
    [("pass", "pass"), ("fail", "fail"), ("flooded", "fail"), ("fault", "invalid")],
)
def test_what_was_held_is_judged_as_it_was_counted(case: Case, word: str) -> None:
    verdict = judged(at_fault(make_hold(case), case), ABYSS)
    written = abyss_verdict(case)
    assert verdict.word == written.word == word
    assert [remark.code for remark in verdict.reasons] == [one.code for one in written.reasons]
    if case != "fault":
        assert [goal.holds for goal in verdict.goals] == [goal.holds for goal in written.goals]
        live = verdict.goals[0]
        assert live.measured == written.goals[0].measured == live.interval[0] == live.interval[1]


def test_a_flood_fails_with_its_account_and_is_bound_by_capacity() -> None:
    verdict = judged(make_hold("flooded"), ABYSS)
    assert verdict.flooded and verdict.word == "fail" and EXIT_CODE[verdict.word] == 1
    assert verdict.reasons[0].details == FLOOD_DETAILS
    assert (verdict.bound_by, verdict.bound_share) == ("capacity", 0.0)
    assert codes(verdict) == ["flooded", "smaller_footprint"]
    assert verdict.phase_bounds == {} and verdict.noise_cv == 0.0 and verdict.crowns == ()
    assert not judged(make_hold("fail"), ABYSS).flooded


def test_a_flood_reaches_no_goal_however_much_was_held_when_it_came() -> None:
    result = make_hold("flooded", {"schedule.batch": 32, "cache.bits": 8})
    assert result.flood is not None
    full = msgspec.structs.replace(result.flood.ledger, live_tokens=9_000)
    flood = msgspec.structs.replace(result.flood, ledger=full)
    verdict = judged(msgspec.structs.replace(result, flood=flood, ledger=full), ABYSS)
    assert verdict.word == "fail" and verdict.metrics["live_tokens"] == 9_000
    assert [goal.holds for goal in verdict.goals] == [None, None]


def test_a_flood_answers_the_question_of_the_hall() -> None:
    """2,048 tokens of 23,040 bytes: the reference's own account, whatever became of the build."""
    for case in ("flooded", "pass", "fail"):
        verdict = judged(make_hold(case), ABYSS)  # type: ignore[arg-type]
        assert truth(verdict, "kv_request_mb") == pytest.approx(2048 * FULL_TOKEN / 1e6)


def test_a_flood_that_is_not_to_be_believed_is_no_flood() -> None:
    result = msgspec.structs.replace(make_hold("flooded"), faults=(Fault("worker_died"),))
    verdict = judged(result, ABYSS)
    assert verdict.word == "invalid" and not verdict.flooded


def test_noise_voids_nothing_that_is_counted() -> None:
    result = make_hold("pass")
    loud = tuple(
        msgspec.structs.replace(
            run, wall_seconds=run.wall_seconds * (1 + number), other_seconds=number * 1.0
        )
        for number, run in enumerate(result.singles)
    )
    faults = (Fault("noise", {"cv": "60"}), Fault("unstable", {"runs": "10", "cv": "60"}))
    noisy = msgspec.structs.replace(result, singles=loud, faults=faults)
    verdict = judged(noisy, ABYSS)
    assert verdict.noise_cv > 0.25 and verdict.word == "pass"
    assert "noisy_machine" in codes(verdict)
    other = msgspec.structs.replace(noisy, faults=(Fault("throttled"),))
    assert judged(other, ABYSS).word == "invalid"


def test_a_hold_that_beat_physics_is_still_not_believed() -> None:
    result = make_hold("pass")
    fast = tuple(
        msgspec.structs.replace(run, step_seconds=tuple(1e-4 for _ in run.step_seconds))
        for run in result.singles
    )
    verdict = judged(msgspec.structs.replace(result, singles=fast), ABYSS)
    assert verdict.word == "invalid" and "too_fast" in codes(verdict)


def test_four_bits_hold_enough_and_break_the_meaning() -> None:
    verdict = judged(make_hold("fail", {"schedule.batch": 8, "cache.bits": 4}), ABYSS)
    assert [goal.holds for goal in verdict.goals] == [True, False]
    assert verdict.bound_by == "quality" and "more_bits" in codes(verdict)


def test_a_vessel_that_held_too_little_is_told_to_hold_more() -> None:
    assert codes(judged(make_hold("fail"), ABYSS)) == ["goal_broken", "hold_more"]


@pytest.mark.parametrize(
    ("case", "word"),
    [("pass", "pass"), ("fail", "fail"), ("straddle", "inconclusive"), ("fault", "invalid")],
)
def test_served_loads_are_judged_in_pairs(case: Case, word: str) -> None:
    verdict = judged(at_fault(make_serve(case), case), PAGING)
    written = paging_verdict(case)
    assert verdict.word == written.word == word
    assert verdict.pairs_used == written.pairs_used
    if case != "fault":
        assert [goal.holds for goal in verdict.goals] == [goal.holds for goal in written.goals]
        for goal, hand in zip(verdict.goals, written.goals, strict=True):
            assert goal.measured == pytest.approx(hand.measured, rel=0.05)


def test_wasted_room_is_what_bound_a_load_that_broke_its_use_of_memory() -> None:
    verdict = judged(make_serve("fail"), PAGING)
    assert verdict.bound_by == "capacity" and verdict.reasons[0].details["measured"] == "45.4 %"
    assert "waste_less" in codes(verdict)
    slow = judge(make_serve("fail"), [Bound("throughput_ratio", ">=", 1.5)])
    assert slow.bound_by == "bandwidth" and slow.phase_bounds["decode"] == "bandwidth"
    # 269 MB of weights and what was held, over 40 GB/s, in a step of 16 ms and 0.5 ms a request
    assert slow.bound_share == pytest.approx(0.4, abs=0.05)


def test_the_question_of_the_array_is_answered_by_the_reference() -> None:
    use = truth(judged(make_serve("pass"), PAGING), "reference_use")
    assert use == truth(judged(make_serve("fail"), PAGING), "reference_use")
    assert 20 < float(use) < 60


def with_pair(result: TrialResult, number: int, **factors: float) -> TrialResult:
    """One pair's builds stretched by factors."""
    pairs = list(result.load_pairs)
    pair = pairs[number]
    changed: dict[str, Any] = {
        build: stretched(getattr(pair, build), factor) for build, factor in factors.items()
    }
    pairs[number] = msgspec.structs.replace(pair, **changed)
    return msgspec.structs.replace(result, load_pairs=tuple(pairs))


@pytest.mark.parametrize("build", ["candidate", "reference"])
def test_either_builds_load_beating_physics_is_invalid(build: str) -> None:
    verdict = judged(with_pair(make_serve("pass"), 3, **{build: 0.3}), PAGING)
    assert verdict.word == "invalid" and "too_fast" in codes(verdict)


def test_loads_that_spread_too_far_are_no_verdict() -> None:
    result = make_serve("pass")
    assert judged(result, PAGING).noise_cv < 0.05
    for number in range(4):
        result = with_pair(result, number, candidate=2.5, reference=2.5)
    verdict = judged(result, PAGING)
    assert verdict.noise_cv > 0.25 and verdict.word == "invalid" and codes(verdict)[0] == "noise"


def test_a_served_trial_without_loads_is_judged_without_a_crash() -> None:
    empty = msgspec.structs.replace(make_serve("pass"), load_pairs=())
    verdict = judged(empty, PAGING)
    assert verdict.word == "inconclusive" and verdict.bound_by == "none"


@pytest.mark.parametrize("order", ["AB", "BA"])
def test_one_pair_of_loads_is_not_enough(order: str) -> None:
    (first, *_) = make_serve("pass").load_pairs
    alone = (LoadPair(order, first.reference, first.candidate),)  # type: ignore[arg-type]
    verdict = judged(msgspec.structs.replace(make_serve("pass"), load_pairs=alone), PAGING)
    assert verdict.word == "inconclusive" and "not_enough_samples" in codes(verdict)


@pytest.mark.parametrize(
    ("stage", "result"),
    [(ABYSS, make_hold("flooded")), (ABYSS, make_hold("pass")), (PAGING, make_serve("pass"))],
    ids=["flooded", "held", "served"],
)
def test_a_record_keeps_the_evidence_whole(stage: Stage, result: TrialResult) -> None:
    verdict = judged(result, stage)
    record = record_of(stage, result.spec.build, verdict, result, None, 0)
    kept = msgspec.json.decode(msgspec.json.encode(record), type=type(record))
    assert result_of(kept) == result and verdict_of(kept) == verdict
    found = result_of(kept)
    assert found is not None and judged(found, stage) == verdict
    if result.flood is not None:
        assert kept.result is not None
        assert kept.result["flood"]["ledger"]["live_tokens"] == 7175
