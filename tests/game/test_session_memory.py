"""The desk in halls with a budget: prices, refusals, floods that are recorded and served after."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from canned_memory import ABYSS_BUILDS, abyss_case
from canned_trials import make_result
from canned_worker import CannedWorker

from engine.messages import RunTrial
from engine.resolve import Resolved
from engine.trial import TrialResult
from game.proof import prove
from game.rules.judge import judge
from game.rules.verdict import Verdict
from game.session import Session, SessionInputError
from game.trial_record import result_of, verdict_of
from story.facts import FACTS
from story.schema import Proof


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "cache"))


def open_session(home: Path, *answers: TrialResult, practice: bool = False) -> Session:
    worker = CannedWorker(*answers)
    return Session.open(home / "home", make_client=worker.make, practice=practice)


async def test_the_forge_is_priced_in_its_vessel(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    await session.ready()
    for batch, slots in ((1, 1), (7, 7), (8, 7), (64, 7)):
        price = session.price("abyss", {"schedule.batch": batch})
        assert price is not None and price.vessel == 511_023_513
        assert price.plan.slots == slots and price.total <= price.vessel
    narrow = session.price("abyss", ABYSS_BUILDS["pass"])
    assert narrow is not None and narrow.plan.slots == 8
    paged = session.price("paging", {"cache.layout": "paged"})
    assert paged is not None and paged.plan.blocks * 16 > 2 * 496  # more than the slots hold


async def test_a_build_that_floods_is_taken_and_one_that_never_fits_is_not(tmp_path: Path) -> None:
    session = open_session(tmp_path)
    await session.ready()
    assert isinstance(session.check("abyss", {"schedule.batch": 64}), Resolved)
    refused = session.check("abyss", {"run.precision": "float32"})
    assert isinstance(refused, str) and "bfloat16" in refused
    assert session.price("abyss", {"run.precision": "float32"}) is None
    with pytest.raises(SessionInputError, match="bfloat16"):
        await session.trial("abyss", {"run.precision": "float32"}, 40.0)
    assert session.records() == ()


async def test_a_flood_is_recorded_with_its_evidence_and_the_next_trial_runs(
    tmp_path: Path,
) -> None:
    session = open_session(tmp_path, make_result("abyss", "flooded"), make_result("abyss", "pass"))
    flood = await session.trial("abyss", ABYSS_BUILDS["flooded"], 40.0)
    assert flood.verdict.flooded and flood.verdict.word == "fail"
    assert [charge.code for charge in flood.charges] == ["guess_close", "trial_failed"]
    assert flood.facts["scar"] is True and flood.facts["floods"] == 1
    assert set(flood.facts) <= set(FACTS)
    kept = session.records()[-1]
    evidence = result_of(kept)
    assert evidence is not None and evidence.flood is not None
    assert evidence.flood.ledger.reserved_bytes <= (evidence.flood.ledger.budget or 0)
    stage = session.open_stage("abyss")
    assert verdict_of(kept) == flood.verdict == judge(evidence, stage.goals)
    after = await session.trial("abyss", ABYSS_BUILDS["pass"], 40.0, scored=False)
    assert after.verdict.word == "pass"
    hall = session.standing().halls["abyss"]
    assert hall.state == "passed" and hall.scar == kept.digest
    await session.close()


async def test_the_guess_is_scored_by_a_flood_and_not_a_second_time(tmp_path: Path) -> None:
    flood = make_result("abyss", "flooded")
    session = open_session(tmp_path, flood, flood)
    first = await session.trial("abyss", ABYSS_BUILDS["flooded"], 400.0)
    assert first.guess is not None and first.guess.truth == pytest.approx(47.2, abs=0.05)
    assert {charge.code for charge in first.charges} == {"guess_far", "trial_failed"}
    second = await session.trial("abyss", ABYSS_BUILDS["flooded"], 400.0, scored=False)
    assert {charge.code for charge in second.charges} == {"trial_failed"}
    assert second.facts["floods"] == 2


@pytest.mark.parametrize(
    ("stage", "kind", "bound"), [("abyss", "hold", 8192), ("paging", "serve", 0.9)]
)
async def test_the_spec_of_a_hall_of_memory_says_what_kind_of_trial_it_is(
    tmp_path: Path, stage: str, kind: str, bound: float
) -> None:
    worker = CannedWorker()
    session = Session.open(tmp_path / "home", make_client=worker.make)
    await session.trial(stage, {})
    (spec,) = [command.spec for command in worker.commands if isinstance(command, RunTrial)]
    assert spec.kind == kind and spec.bounds[0].bound == bound
    assert spec.reference == session.open_stage(stage).reference


async def test_a_result_without_a_ledger_is_still_a_verdict(tmp_path: Path) -> None:
    """A worker of an earlier make keeps no ledger: what it counted is judged all the same."""
    old = msgspec.structs.replace(make_result("abyss", "pass"), ledger=None)
    outcome = await open_session(tmp_path, old).trial("abyss", ABYSS_BUILDS["pass"], 40.0)
    assert outcome.verdict.word == "pass" and "held_mb" not in outcome.facts


async def test_lint_proves_a_hall_of_memory_by_its_builds(tmp_path: Path) -> None:
    """The default loses, two builds hold, one breaks the vessel: what the hall itself claims."""
    session = open_session(tmp_path, practice=True)
    stage = session.open_stage("abyss")
    won = ({"schedule.batch": 8, "cache.bits": 8}, {"schedule.batch": 9, "cache.bits": 8})
    proved = Proof("2026-01-01", "canned", losers=({"schedule.batch": 8},), winners=won)
    stage = msgspec.structs.replace(stage, proof=proved)

    async def run(build: dict[str, int | str]) -> tuple[Verdict, float]:
        whole = {**stage.build, **build}
        return judge(make_result("abyss", abyss_case(whole), whole), stage.goals), 0.02

    proof = await prove(stage, run)
    assert proof.findings == ()
    assert [trial.flooded for trial in proof.trials] == [False, True, False, False]
    # A margin of 0.7 % in tokens held is no matter of noise: they are counted.
    assert proof.trials[2].margin > proof.trials[2].margin_needed
