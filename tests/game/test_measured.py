"""What the set pieces know: a fold over events, agreeing in the end with the raw samples."""

from __future__ import annotations

from statistics import median

import msgspec
import pytest
from canned_engine import pair_events
from canned_memory import account_events, make_hold
from canned_serving import make_serve, pages_events
from canned_trials import make_result

from engine.messages import Account, Progress, Step, TrialDone
from game.measured import Measured, Rates, hear, settled, typical_run
from game.roof_points import points_measured, shares_of_ceilings
from game.rules.judge import judge


def test_events_fold_to_what_is_known_by_build() -> None:
    known = Measured()
    for event in pair_events():
        known = hear(known, event)
    assert known.reference == Rates(1.25e-3, 27e-3)
    assert known.candidate == Rates(0.6e-3, 17e-3 / 8)
    assert (known.now, known.phase, known.batch) == ("candidate", "decode", 8)
    assert known.progress is not None and known.progress.done == 4


def test_a_step_without_rates_forgets_nothing() -> None:
    known = hear(Measured(), Step(1, "decode", "reference", 1, 3, {"prefill": 1e-3}))
    known = hear(known, Step(1, "prefill", "reference", 1, 0, {}))
    assert known.reference == Rates(1e-3, None)


def test_between_timed_parts_no_build_is_on_the_clock() -> None:
    known = hear(Measured(), Progress(1, "pairs", 1, 8, order="B"))
    assert known.now == "candidate"
    assert hear(known, Progress(1, "quality", 0, 1)).now is None


def test_the_end_of_a_trial_gives_the_medians_of_its_runs() -> None:
    result = make_result("pendulum", "pass")
    known = hear(Measured(), TrialDone(1, result))
    tokens = 8 * 128
    costs = [pair.candidate.prefill_seconds / tokens for pair in result.pairs]
    assert known.candidate.prefill == pytest.approx(median(costs))
    steps = [sum(p.candidate.step_seconds) / 23 / 8 for p in result.pairs]
    assert known.candidate.decode == pytest.approx(median(steps))


def test_the_ratio_shown_is_the_one_the_guess_is_scored_by() -> None:
    result = make_result("pendulum", "pass")
    truth = judge(result, ()).metrics["decode_cost_ratio"]
    assert settled(result).reference.ratio == pytest.approx(truth, rel=5e-3)


def test_a_timeline_knows_one_build() -> None:
    known = settled(make_result("gate", "pass"))
    assert known.reference == Rates() and known.candidate.decode is not None


def test_the_typical_run_is_a_run_that_was() -> None:
    result = make_result("gate", "pass")
    run = typical_run(result.singles)
    assert run in result.singles
    faster = [one for one in result.singles if one.wall_seconds < run.wall_seconds]
    slower = [one for one in result.singles if one.wall_seconds > run.wall_seconds]
    assert abs(len(faster) - len(slower)) <= 1
    assert typical_run([]) is None


def test_points_are_counted_work_over_measured_time() -> None:
    result = make_result("pendulum", "pass")
    points = {point.mark: point for point in points_measured(result)}
    assert set(points) == {"P", "D", "p", "d"}
    work = result.reference_work.decode
    assert points["d"].intensity == pytest.approx(work.flops / work.bytes_moved)
    step = median(sum(pair.reference.step_seconds) / 23 for pair in result.pairs)
    assert points["d"].rate == pytest.approx(work.flops / step)
    assert points["D"].intensity > 8 * points["d"].intensity, "half the bytes and eight requests"


def test_shares_of_ceilings_are_least_time_over_time() -> None:
    result = make_result("gate", "pass")
    work, ceilings = result.candidate_work.decode, result.ceilings
    carried, computed = shares_of_ceilings(work, 0.03, ceilings, "float32")
    assert carried == pytest.approx(work.bytes_moved / 40e9 / 0.03)
    assert computed == pytest.approx(work.flops / 0.18e12 / 0.03)


def test_accounts_fold_to_the_latest_and_the_fullest_by_build() -> None:
    known = Measured()
    for event in account_events("pass"):
        known = hear(known, event)
    held = known.accounts["candidate"].held_bytes
    assert held == 8 * 1031 * 11_880 and known.flood is None
    less = msgspec.structs.replace(known.accounts["candidate"], held_bytes=held // 2)
    known = hear(known, Account(1, "candidate", less))
    assert known.accounts["candidate"].held_bytes == held // 2
    assert known.crests["candidate"].held_bytes == held
    assert "reference" not in known.accounts


def test_a_flood_once_heard_stays() -> None:
    known = Measured()
    for event in account_events("flooded"):
        known = hear(known, event)
    assert known.flood is not None and known.flood.running == 7
    assert hear(known, Progress(1, "quality", 0, 1)).flood == known.flood
    result = make_hold("flooded")
    assert settled(result).flood == result.flood
    assert settled(result).accounts["candidate"] == result.flood.ledger


def test_pages_fold_by_build_and_only_new_copies_are_fresh() -> None:
    known = Measured()
    for event in pages_events():
        known = hear(known, event)
    heard = known.pages["candidate"]
    assert known.pages["reference"].pages.layout == "contiguous"
    assert known.fresh["candidate"] == heard.pages.copied and heard.pages.copies == 2
    known = hear(known, heard)
    assert known.fresh["candidate"] == (), "nothing was copied since"
    copied = (*heard.pages.copied, (9, 70))
    later = msgspec.structs.replace(heard.pages, copies=3, copied=copied)
    known = hear(known, msgspec.structs.replace(heard, pages=later))
    assert known.fresh["candidate"] == ((9, 70),)
    again = msgspec.structs.replace(heard.pages, copies=1, copied=((2, 3),))
    known = hear(known, msgspec.structs.replace(heard, pages=again))
    assert known.fresh["candidate"] == ((2, 3),), "a fresh load counts from nothing"


def test_a_served_trial_settles_without_rates_of_single_requests() -> None:
    known = settled(make_serve())
    assert known.candidate == Rates() and known.accounts["candidate"].live_tokens > 0
