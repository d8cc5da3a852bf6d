"""The judge: from a trial's result and a stage's goals to a verdict. Pure: no clock, no I/O.

The words: `invalid` where the run cannot be believed (a fault, too much noise, faster than
physics), which is settled before any goal is read; `fail` where a goal is broken; `inconclusive`
where none is broken but one still lies across its bound; `pass` otherwise. Only a run that can be
believed can cost the player anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Literal

from engine.intervals import Decision, decide
from engine.metrics import (
    METRICS,
    Evidence,
    Phase,
    binding,
    faster_than_physics,
    noise_variation,
    phase_seconds,
    point_estimates,
    samples,
)
from engine.trial import Bound, Fault, Op, TrialResult
from game.rules.verdict import BoundBy, GoalOutcome, Remark, Verdict, Word

CrownBound = tuple[str, str, Op, float]
"""(crown, metric, op, bound)."""

NOISE_BANNER = 0.10
NOISE_LIMIT = 0.25
SINGLE_LOOK_ALPHA = 0.05

_MISSED: dict[str, Phase | Literal["capacity", "quality"]] = {
    "decode_throughput_ratio": "decode",
    "decode_throughput": "decode",
    "decode_ceiling_share": "decode",
    "decode_cost_ratio": "decode",
    "decode_time_share": "decode",
    "tpot_ratio": "decode",
    "tpot": "decode",
    "ttft_ratio": "prefill",
    "ttft": "prefill",
    "prefill_throughput_ratio": "prefill",
    "prefill_throughput": "prefill",
    "prefill_ceiling_share": "prefill",
    "prefill_time_share": "prefill",
    "memory_ratio": "capacity",
    "memory_bytes": "capacity",
    "kl": "quality",
    "top1": "quality",
    "perplexity_ratio": "quality",
}
"""What names the bound of a run when a goal on this metric breaks."""

_LEVERS: dict[BoundBy, str] = {
    "bandwidth": "move_fewer_bytes",
    "compute": "less_arithmetic",
    "launch overhead": "fewer_calls",
    "capacity": "smaller_footprint",
    "quality": "more_bits",
}
_SETTLE = {
    "noise": "close_noisy_programs",
    "unstable": "close_noisy_programs",
    "throttled": "let_it_cool",
    "too_fast": "measure_machine_again",
    "wrong_output": "report_wrong_output",
    "worker_died": "try_again",
    "aborted": "try_again",
}
"""Fault code -> the advice that says what to do about it."""


def judge(
    result: TrialResult, goals: Sequence[Bound], crowns: Sequence[CrownBound] = ()
) -> Verdict:
    """Judge one trial against a stage's goals, and against its crowns where it passed.

    Raises:
        MetricError: a goal or crown names no metric.
    """
    evidence = Evidence.of(result)
    faults = _faults(result, evidence)
    crown_bounds = [Bound(metric, op, bound) for _, metric, op, bound in crowns]
    decided = _decide(result, evidence, goals)
    word = _word(faults, decided)
    phases = _phase_bounds(evidence)
    broken = next((goal for goal in decided if goal.holds is False), None)
    metrics = point_estimates(evidence)
    bound_by, share = _bound_by(phases, metrics, broken)
    cv = noise_variation(result.pairs, result.singles)
    won = _decide(result, evidence, crown_bounds) if word == "pass" else ()
    return Verdict(
        word=word,
        goals=tuple(_outcome(goal) for goal in decided),
        metrics=metrics,
        bound_by=bound_by,
        bound_share=share,
        phase_bounds={phase: bound for phase, (bound, _) in phases.items()},
        reasons=_reasons(word, faults, decided),
        advice=_advice(word, faults, bound_by, cv),
        crowns=tuple(
            crown[0] for crown, goal in zip(crowns, won, strict=False) if goal.holds is True
        ),
        pairs_used=len(result.pairs),
        noise_cv=cv,
    )


def truth(seen: Verdict | TrialResult, metric: str) -> float | str:
    """What was measured of `metric`, to score a guess by; a word for the bottleneck.

    The bottleneck is that of the whole request: what bound the phase that took most of its time,
    whichever goal broke.

    Raises:
        ValueError: the trial did not measure it.
    """
    verdict = judge(seen, ()) if isinstance(seen, TrialResult) else seen
    if metric == "bottleneck":
        phase = _longest(verdict.metrics)
        if phase in verdict.phase_bounds:
            return verdict.phase_bounds[phase]
    elif metric in verdict.metrics:
        return verdict.metrics[metric]
    known = ", ".join(METRICS)
    raise ValueError(f"this trial did not measure {metric!r}; the metrics there are: {known}")


def _decide(
    result: TrialResult, evidence: Evidence, bounds: Sequence[Bound]
) -> tuple[Decision, ...]:
    """A trial of several looks spends alpha at each; a timeline looks once, at 95 %."""
    paired = result.spec.kind == "paired"
    alpha = result.spec.alpha if paired else SINGLE_LOOK_ALPHA
    seen = samples(evidence, (bound.metric for bound in bounds))
    return decide(seen, bounds, alpha, result.spec.dead_band)


def _faults(result: TrialResult, evidence: Evidence) -> tuple[Fault, ...]:
    """The runner's faults, and those that the samples themselves show; one of each code."""
    found = {fault.code: fault for fault in result.faults}
    cv = noise_variation(result.pairs, result.singles)
    if cv > NOISE_LIMIT and not {"noise", "unstable"} & found.keys():
        found["noise"] = Fault("noise", {"cv": _percent(cv)})
    if "too_fast" not in found:
        fault = _too_fast(result, evidence)
        if fault is not None:
            found["too_fast"] = fault
    return tuple(found.values())


def _too_fast(result: TrialResult, evidence: Evidence) -> Fault | None:
    """Both builds are held to the floor: a reference that is too fast is no reference."""
    builds = (
        (evidence.candidate_runs, result.candidate_work),
        (tuple(pair.reference for pair in result.pairs), result.reference_work),
    )
    for runs, work in builds:
        for run in runs:
            beaten = faster_than_physics(run, work, result.ceilings)
            if beaten is not None:
                phase, share = beaten
                return Fault("too_fast", {"phase": phase, "share": _percent(share)})
    return None


def _word(faults: Sequence[Fault], decided: Sequence[Decision]) -> Word:
    if faults:
        return "invalid"
    if any(goal.holds is False for goal in decided):
        return "fail"
    if any(goal.holds is None for goal in decided):
        return "inconclusive"
    return "pass"


def _phase_bounds(evidence: Evidence) -> dict[str, tuple[BoundBy, float]]:
    """Phase -> the resource with the largest floor, and that floor's share of the median time."""
    runs = evidence.candidate_runs
    if not runs:
        return {}
    found: dict[str, tuple[BoundBy, float]] = {}
    phases: tuple[Phase, ...] = ("prefill", "decode")
    for phase in phases:
        counted = evidence.work.prefill if phase == "prefill" else evidence.work.decode
        word, floor = binding(counted, evidence.work.precision, evidence.ceilings)
        found[phase] = (word, floor / median(phase_seconds(run, phase) for run in runs))
    return found


def _longest(metrics: dict[str, float]) -> str:
    """The phase that took most of the time: prefill or decode."""
    shares = {phase: metrics.get(f"{phase}_time_share", 0.0) for phase in ("decode", "prefill")}
    return max(shares, key=lambda phase: shares[phase])


def _bound_by(
    phases: dict[str, tuple[BoundBy, float]], metrics: dict[str, float], broken: Decision | None
) -> tuple[BoundBy, float]:
    """What bound the run: the goal that broke names it, else the phase that took longest.

    The share is of that phase's ceiling; capacity and quality have no ceiling in seconds, so 0.
    """
    missed = _MISSED.get(broken.metric) if broken is not None else None
    if missed == "capacity" or missed == "quality":
        return missed, 0.0
    if not phases:
        return "none", 0.0
    return phases[missed or _longest(metrics)]


def _outcome(goal: Decision) -> GoalOutcome:
    found = goal.estimate
    return GoalOutcome(
        metric=goal.metric,
        op=goal.op,
        bound=goal.bound,
        measured=found.point,
        interval=(found.low, found.high),
        holds=goal.holds,
    )


def _reasons(
    word: Word, faults: Sequence[Fault], decided: Sequence[Decision]
) -> tuple[Remark, ...]:
    if word == "invalid":
        return tuple(Remark(fault.code, fault.details) for fault in faults)
    broken = tuple(_remark("goal_broken", goal) for goal in decided if goal.holds is False)
    open_goals = tuple(_open(goal) for goal in decided if goal.holds is None)
    if word == "pass":
        return (Remark("all_hold" if decided else "nothing_to_fail"),)
    return broken + open_goals


def _open(goal: Decision) -> Remark:
    if goal.estimate.bounded:
        return _remark("straddles", goal)
    return Remark("not_enough_samples", {"metric": goal.metric})


def _remark(code: str, goal: Decision) -> Remark:
    """`metric` is a metric's name: the interface shows its `metric.<name>` text."""
    details = {
        "metric": goal.metric,
        "measured": f"{goal.estimate.point:.3g}",
        "op": goal.op,
        "bound": f"{goal.bound:g}",
        "low": f"{goal.estimate.low:.3g}",
        "high": f"{goal.estimate.high:.3g}",
    }
    return Remark(code, details)


def _advice(
    word: Word, faults: Iterable[Fault], bound_by: BoundBy, cv: float
) -> tuple[Remark, ...]:
    """What to do next, in the order to try it; nothing twice."""
    codes: dict[str, Remark] = {}
    if word == "invalid":
        for fault in faults:
            code = _SETTLE.get(fault.code, "try_again")
            codes[code] = Remark(code)
        codes["nothing_lost"] = Remark("nothing_lost")
    elif word == "inconclusive":
        codes["close_noisy_programs"] = Remark("close_noisy_programs")
        codes["widen_margin"] = Remark("widen_margin")
        codes["nothing_lost"] = Remark("nothing_lost")
    elif word == "fail" and bound_by in _LEVERS:
        codes[_LEVERS[bound_by]] = Remark(_LEVERS[bound_by])
    if word != "invalid" and cv > NOISE_BANNER:
        codes["noisy_machine"] = Remark("noisy_machine", {"cv": _percent(cv)})
    return tuple(codes.values())


def _percent(share: float) -> str:
    return f"{share * 100:.0f}"
