"""The stage proof catches a stage that anyone passes, that nobody passes, or that noise decides."""

from __future__ import annotations

import math

import msgspec
import pytest

from engine.trial import Bound
from game.proof import claims, margin, prove
from game.rules.verdict import GoalOutcome, Remark, Verdict
from story.schema import Guess, Proof, Stage

STAGE = Stage(
    id="pendulum",
    order=1,
    open=True,
    guess=Guess(kind="dial", metric="decode_cost_ratio", high=300),
    knobs=("schedule.batch", "run.precision"),
    build={"schedule.batch": 1, "run.precision": "float32"},
    goals=(Bound("tpot_ratio", "<=", 1.6),),
    hint_build={"schedule.batch": 8, "run.precision": "bfloat16"},
    proof=Proof(
        date="2026-01-01",
        device="a test",
        losers=({"schedule.batch": 2},),
        winners=({"schedule.batch": 8, "run.precision": "bfloat16"}, {"schedule.batch": 16}),
    ),
)


def verdict(word: str, measured: float = 1.0) -> Verdict:
    interval = (measured * 0.99, measured * 1.01)
    goal = GoalOutcome("tpot_ratio", "<=", 1.6, measured, interval, word == "pass")
    return Verdict(
        word=word,  # type: ignore[arg-type]
        goals=(goal,),
        metrics={},
        bound_by="bandwidth",
        bound_share=0.5,
        phase_bounds={},
        reasons=(),
        advice=(),
        crowns=(),
        pairs_used=8,
        noise_cv=0.02,
    )


async def prove_with(words: dict[int, str], measured: float = 1.0, noise: float = 0.01):
    """A machine on which the build of each batch size gets the given word."""

    async def run(build):
        return verdict(words[build.get("schedule.batch", 1)], measured), noise

    return await prove(STAGE, run)


def test_each_claim_is_run_once_and_the_default_first():
    assert claims(STAGE) == [
        ({}, "lose"),
        ({"schedule.batch": 2}, "lose"),
        ({"schedule.batch": 8, "run.precision": "bfloat16"}, "win"),
        ({"schedule.batch": 16}, "win"),
    ]


def test_a_hall_without_goals_only_has_to_run():
    gate = Stage(id="gate", order=0, open=True, build={"workload.prompt": 128})
    assert claims(gate) == [({}, "run")]


async def test_a_stage_that_holds_has_no_findings():
    proof = await prove_with({1: "fail", 2: "fail", 8: "pass", 16: "pass"})
    assert proof.findings == ()
    assert [trial.word for trial in proof.trials] == ["fail", "fail", "pass", "pass"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({1: "pass", 2: "fail", 8: "pass", 16: "pass"}, "the default build should fail"),
        ({1: "inconclusive", 2: "fail", 8: "pass", 16: "pass"}, "was inconclusive"),
        ({1: "fail", 2: "pass", 8: "pass", 16: "pass"}, "batch=2 should fail"),
        ({1: "fail", 2: "fail", 8: "fail", 16: "pass"}, "two different builds must pass; 1 did"),
        ({1: "fail", 2: "fail", 8: "invalid", 16: "invalid"}, "must pass; 0 did"),
    ],
)
async def test_a_broken_claim_is_named(words, said):
    proof = await prove_with(words)
    assert any(said in finding for finding in proof.findings)


async def test_a_win_inside_the_noise_is_a_finding():
    words = {1: "fail", 2: "fail", 8: "pass", 16: "pass"}
    near = 1.6 / math.exp(0.04)  # a margin of 4 %: above the floor of 3 %
    assert (await prove_with(words, near, noise=0.01)).findings == ()
    noisy = (await prove_with(words, near, noise=0.05)).findings  # 1.5 x 5 % = 7.5 % needed
    assert len(noisy) == 2 and "the margin must be 7.5 %" in noisy[0]
    tight = (await prove_with(words, 1.6 / math.exp(0.02), noise=0.0)).findings
    assert "the margin must be 3.0 %" in tight[0]


def test_the_margin_is_that_of_the_nearest_goal():
    far = GoalOutcome("a", ">=", 2.0, 4.0, (3.9, 4.1), True)
    near = GoalOutcome("b", "<=", 1.1, 1.0, (0.99, 1.01), True)
    counted = GoalOutcome("c", ">=", 8192, 8248, (8248, 8248), True)
    drawn = GoalOutcome("memory_use", ">=", 0.9, 0.91, (0.905, 0.915), True)
    assert margin([far, near, counted, drawn]) == pytest.approx(math.log(1.1))
    assert margin([]) == margin([counted, drawn]) == math.inf


@pytest.mark.parametrize("flooding", [True, False])
async def test_a_hall_that_demands_a_scar_needs_a_build_that_leaves_it(flooding):
    stage = msgspec.structs.replace(STAGE, scar="flood")

    async def run(build):
        batch = build.get("schedule.batch", 1)
        seen = verdict("pass" if batch >= 8 else "fail")
        if flooding and batch == 2:
            seen = msgspec.structs.replace(seen, reasons=(Remark("flooded"),))
        return seen, 0.01

    proof = await prove(stage, run)
    assert [trial.flooded for trial in proof.trials] == [False, flooding, False, False]
    assert bool(proof.findings) is not flooding
    assert all("demands a flood" in finding for finding in proof.findings)


@pytest.mark.parametrize(("said", "holds"), [("over_the_cliff", True), ("flooded", False)])
async def test_a_hall_of_the_cliff_needs_a_build_that_falls(said, holds):
    stage = msgspec.structs.replace(STAGE, scar="cliff")

    async def run(build):
        batch = build.get("schedule.batch", 1)
        seen = verdict("pass" if batch >= 8 else "fail")
        if batch == 2:
            seen = msgspec.structs.replace(seen, reasons=(Remark(said), Remark("goal_broken")))
        return seen, 0.01

    proof = await prove(stage, run)
    assert [trial.fallen for trial in proof.trials] == [False, holds, False, False]
    assert bool(proof.findings) is not holds
    assert all("demands a cliff, and no build fell over it" in one for one in proof.findings)
