"""Does a stage hold on this machine: the default build loses, two winners exist, margins clear.

The claims stand in the stage file (`hint_build`, `proof`); here they are run, not believed.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal

import msgspec

from engine.domains import Value
from game.rules.verdict import GoalOutcome, Verdict
from story.schema import Stage

Build = dict[str, Value]
Expected = Literal["lose", "win", "run"]
RunBuild = Callable[[Build], Awaitable[tuple[Verdict, float]]]
"""Runs one build of the stage: its verdict, and the noise of the machine as it stood."""

MARGIN_FLOOR = 0.03
MARGIN_NOISE = 1.5
_LEAVING = {"flood": "broke the budget", "cliff": "fell over it"}
"""What a build must do to leave the scar that a hall demands."""
COUNTED = frozenset({"memory_use", "reference_use", "prefix_hit_rate", "recomputed_share"})
"""Metrics that vary from load to load and never with the clock: noise cannot move them."""


class Trial(msgspec.Struct, frozen=True):
    """One build of the sweep. `margin` is the least |log(measured / bound)| over its timed goals;
    `flooded` tells a build that broke the memory budget, `fallen` one whose model lost its meaning.
    """

    build: Build
    expected: Expected
    word: str
    goals: tuple[GoalOutcome, ...]
    margin: float
    margin_needed: float
    flooded: bool = False
    fallen: bool = False

    def left(self, scar: str) -> bool:
        """Did it fail as a hall demands that demands this scar?"""
        return self.fallen if scar == "cliff" else self.flooded

    @property
    def kept(self) -> bool:
        """Did the build do what the stage claims of it?"""
        if self.expected == "lose":
            return self.word == "fail"
        return self.word == "pass"


class Proof(msgspec.Struct, frozen=True):
    """What the sweep saw of one stage; `findings` is empty where the stage holds."""

    stage: str
    trials: tuple[Trial, ...]
    findings: tuple[str, ...]


def margin(goals: Iterable[GoalOutcome]) -> float:
    """How far, as a log ratio, the nearest goal lies from its bound (infinite for none).

    A goal that is counted and not timed has no noise to stay clear of, whether it comes out the
    same each time (it has no interval) or with the load that was drawn.
    """
    distances = [
        abs(math.log(goal.measured / goal.bound))
        for goal in goals
        if goal.metric not in COUNTED
        and goal.measured > 0
        and goal.bound > 0
        and goal.interval[0] != goal.interval[1]
    ]
    return min(distances, default=math.inf)


def claims(stage: Stage) -> list[tuple[Build, Expected]]:
    """The builds to run, each once: the default first, then the stage's named losers and winners.

    A stage without goals has nothing to lose: its default build only has to run.
    """
    wanted: list[tuple[Build, Expected]] = [({}, "lose" if stage.goals else "run")]
    if stage.goals:
        proof = stage.proof
        wanted += [(build, "lose") for build in (proof.losers if proof else ())]
        winners = (stage.hint_build, *(proof.winners if proof else ()))
        wanted += [(build, "win") for build in winners if build]
    unique: list[tuple[Build, Expected]] = []
    seen: list[Build] = []
    for build, expected in wanted:
        whole = {**stage.build, **build}
        if whole not in seen:
            seen.append(whole)
            unique.append((build, expected))
    return unique


async def prove(stage: Stage, run: RunBuild) -> Proof:
    """Run every claim of the stage and say which did not hold."""
    trials = []
    for build, expected in claims(stage):
        verdict, noise = await run(build)
        needed = max(MARGIN_FLOOR, MARGIN_NOISE * noise)
        near = margin(verdict.goals)
        trials.append(
            Trial(
                build=build,
                expected=expected,
                word=verdict.word,
                goals=verdict.goals,
                margin=near,
                margin_needed=needed,
                flooded=verdict.flooded,
                fallen=verdict.fallen,
            )
        )
    return Proof(stage.id, tuple(trials), tuple(findings(stage, trials)))


def findings(stage: Stage, trials: list[Trial]) -> Iterable[str]:
    for trial in trials:
        shown = show_build(trial.build)
        if not trial.kept:
            wish = {"lose": "fail", "win": "pass", "run": "run"}[trial.expected]
            yield f"{stage.id}: {shown} should {wish} and was {trial.word}"
        elif trial.expected == "win" and trial.margin < trial.margin_needed:
            yield (
                f"{stage.id}: {shown} passes by {trial.margin * 100:.1f} % and the margin must be "
                f"{trial.margin_needed * 100:.1f} %"
            )
    winners = [trial for trial in trials if trial.expected == "win" and trial.word == "pass"]
    if stage.goals and len(winners) < 2:
        yield f"{stage.id}: two different builds must pass; {len(winners)} did"
    scar = stage.scar
    if scar is not None and not any(trial.left(scar) for trial in trials):
        yield (
            f"{stage.id}: the hall demands a {scar}, and no build {_LEAVING[scar]}; "
            "name one that does among the proof's losers"
        )


def show_build(build: Build) -> str:
    if not build:
        return "the default build"
    return " ".join(f"{name.split('.')[-1]}={value}" for name, value in build.items())
