"""Two builds on the clock in ABBA order, until every goal is decided or the looks are over.

Runs or whole loads: the order, the looks and the rule that ends them are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from engine.intervals import decide, settled
from engine.measure.load_harness import LoadHarness
from engine.measure.reporter import Reporter, Side
from engine.measure.run_harness import RunHarness
from engine.measure.seen import Pace, Seen
from engine.measure.timing import Clock
from engine.measure.workload import Workload
from engine.metrics import Evidence, samples
from engine.trial import LoadPair, Pair, TrialSpec

_AFTERWARDS = frozenset({"kl", "top1", "perplexity_ratio", "lossless"})
"""Metrics measured after the last pair: they cannot keep a trial looking."""

Order = Literal["AB", "BA"]
Sample = TypeVar("Sample")
OnSide = Callable[[Side], Sample]
"""Runs one side of a pair and gives its sample."""


def time_run_pairs(
    spec: TrialSpec,
    builds: tuple[RunHarness, RunHarness],
    workload: Workload,
    evidence: Evidence,
    seen: Seen,
    desk: Reporter,
    clock: Clock,
) -> None:
    """Warm both `builds` (reference, candidate) up, then time them in pairs on the same fresh
    prompts; the one with fewer takes the first of them.

    Raises:
        Flooded: a memory budget broke.
        OutputFault, MetricError: a run that cannot be true.
        Aborted: the player stopped it.
    """
    for done, build in enumerate(builds):
        desk.progress("warmup", done, len(builds))
        build.warm_up(workload.prompts)
    named = {build.side: build for build in builds}

    def time_pair(number: int, say: Callable[[Side], None]) -> None:
        count = max(build.prompts_needed for build in builds)
        length = max(build.config.workload.prompt for build in builds)
        prompts = workload.prompts(count, length)
        runs = _in_order(number, say, lambda side: named[side].run(prompts))
        seen.pairs.append(Pair(*runs))

    pace = Pace(clock, sum(build.warmed.seconds for build in builds))
    _look(spec, time_pair, lambda: seen.added_to(evidence), desk, pace)


def time_load_pairs(
    spec: TrialSpec,
    builds: tuple[LoadHarness, LoadHarness],
    workload: Workload,
    evidence: Evidence,
    seen: Seen,
    desk: Reporter,
    clock: Clock,
) -> None:
    """As `time_run_pairs`, with whole loads: both builds of a pair serve the same one.

    The load is that of the candidate's workload, which is the reference's as well.

    Raises:
        Flooded: a memory budget broke.
        OutputFault, CountFault, MetricError: a load that cannot be true.
        Aborted: the player stopped it.
    """
    _, candidate = builds
    for done, build in enumerate(builds):
        desk.progress("warmup", done, len(builds))
        build.warm_up(lambda: workload.rehearsal(candidate.config))
    named = {build.side: build for build in builds}

    def time_pair(number: int, say: Callable[[Side], None]) -> None:
        load = workload.load(candidate.config)
        loads = _in_order(number, say, lambda side: named[side].run(load))
        seen.load_pairs.append(LoadPair(*loads))

    pace = Pace(clock, sum(build.warmed.seconds for build in builds))
    _look(spec, time_pair, lambda: seen.added_to(evidence), desk, pace)


def _in_order(
    number: int, say: Callable[[Side], None], run: OnSide[Sample]
) -> tuple[Order, Sample, Sample]:
    """Both sides of pair `number` (AB, then BA, then AB ...): its order, reference, candidate."""
    forth = number % 2 == 0
    sides: tuple[Side, Side] = ("reference", "candidate")
    samples_of: dict[Side, Sample] = {}
    for side in sides if forth else reversed(sides):
        say(side)
        samples_of[side] = run(side)
    return "AB" if forth else "BA", samples_of["reference"], samples_of["candidate"]


def _look(
    spec: TrialSpec,
    time_pair: Callable[[int, Callable[[Side], None]], None],
    evidence: Callable[[], Evidence],
    desk: Reporter,
    pace: Pace,
) -> None:
    """Pairs to the first look, then on while a goal is open and looks remain."""
    done = 0
    for look in spec.looks:
        while done < look:
            say = _announce(desk, done, look, pace.left(done, look))
            time_pair(done, say)
            done += 1
        desk.progress("pairs", look, look, seconds_left=0.0)
        if _settled(spec, evidence()):
            return


def _announce(desk: Reporter, number: int, look: int, left: float) -> Callable[[Side], None]:
    def say(side: Side) -> None:
        desk.progress("pairs", number, look, "A" if side == "reference" else "B", left)

    return say


def _settled(spec: TrialSpec, evidence: Evidence) -> bool:
    """Whether every goal is decided by the pairs so far: the judge's own rule."""
    bounds = [bound for bound in spec.bounds if bound.metric not in _AFTERWARDS]
    found = samples(evidence, (bound.metric for bound in bounds))
    return settled(decide(found, bounds, spec.alpha, spec.dead_band))
