"""The judge: from a trial's result and a stage's goals to a verdict. Pure: no clock, no I/O.

The words: `invalid` where the run cannot be believed (a fault, too much noise, faster than
physics), which is settled before any goal is read; `fail` where a goal is broken, or where the
memory budget broke; `inconclusive` where none is broken but one still lies across its bound; `pass`
otherwise. Only a run that can be believed can cost the player anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.intervals import Decision, decide
from engine.metrics import METRICS, Evidence, noise_variation, point_estimates, samples
from engine.trial import Bound, Fault, Op, TrialResult
from game.rules.bounds import bound_by, longest_phase, phase_bounds, too_fast
from game.rules.cliff import build_fell, ladder_words
from game.rules.remarks import advice, percent, reasons
from game.rules.verdict import GoalOutcome, Verdict, Word

CrownBound = tuple[str, str, Op, float]
"""(crown, metric, op, bound)."""

NOISE_LIMIT = 0.25
SINGLE_LOOK_ALPHA = 0.05

_SEVERAL_LOOKS = ("paired", "serve")
_OF_TIME = frozenset({"noise", "unstable"})
"""Faults of timing alone: they void no trial whose goals are counted."""


def judge(
    result: TrialResult, goals: Sequence[Bound], crowns: Sequence[CrownBound] = ()
) -> Verdict:
    """Judge one trial against a stage's goals, and against its crowns where it passed.

    Raises:
        MetricError: a goal or crown names no metric.
    """
    evidence = Evidence.of(result)
    cv = noise_variation(result.pairs, result.singles, result.load_pairs)
    counted = result.spec.kind == "hold" or _are_counted(evidence, goals)
    faults = _faults(result, evidence, cv, counted)
    decided = _decide(result, evidence, goals)
    word = _word(result, faults, decided)
    phases = phase_bounds(evidence)
    broken = next((goal for goal in decided if goal.holds is False), None)
    metrics = point_estimates(evidence)
    bound, share = bound_by(phases, metrics, broken)
    if result.flood is not None:
        bound, share = "capacity", 0.0
    elif word == "fail" and build_fell(result):
        bound, share = "quality", 0.0
    won = _crowns(result, evidence, cv, crowns) if word == "pass" else ()
    return Verdict(
        word=word,
        goals=tuple(_outcome(goal) for goal in decided),
        metrics=metrics,
        bound_by=bound,
        bound_share=share,
        phase_bounds={phase: named for phase, (named, _) in phases.items()},
        reasons=reasons(word, faults, decided, result),
        advice=advice(word, faults, bound, cv, decided, result),
        crowns=won,
        pairs_used=len(result.pairs) + len(result.load_pairs),
        noise_cv=cv,
        words=ladder_words(result),
    )


def truth(seen: Verdict | TrialResult, metric: str) -> float | str:
    """What was measured of `metric`, to score a guess by; a word for those metrics that are words.

    The bottleneck is that of the whole request: what bound the phase that took most of its time,
    whichever goal broke. The breaking width is the ladder's, whatever became of the build.

    Raises:
        ValueError: the trial did not measure it.
    """
    verdict = judge(seen, ()) if isinstance(seen, TrialResult) else seen
    if metric == "bottleneck":
        phase = longest_phase(verdict.metrics)
        if phase in verdict.phase_bounds:
            return verdict.phase_bounds[phase]
    elif metric in verdict.words:
        return verdict.words[metric]
    elif metric in verdict.metrics:
        return verdict.metrics[metric]
    known = ", ".join(METRICS)
    raise ValueError(f"this trial did not measure {metric!r}; the metrics there are: {known}")


def _decide(
    result: TrialResult, evidence: Evidence, bounds: Sequence[Bound]
) -> tuple[Decision, ...]:
    """A trial of several looks spends alpha at each; one build's runs are looked at once, at 95 %.

    Where the budget broke no goal is reached: what was counted until then can miss its bound, and
    cannot hold it.
    """
    several = result.spec.kind in _SEVERAL_LOOKS
    alpha = result.spec.alpha if several else SINGLE_LOOK_ALPHA
    seen = samples(evidence, (bound.metric for bound in bounds))
    decided = decide(seen, bounds, alpha, result.spec.dead_band)
    if result.flood is None:
        return decided
    return tuple(replace(goal, holds=False if goal.holds is False else None) for goal in decided)


def _crowns(
    result: TrialResult, evidence: Evidence, cv: float, crowns: Sequence[CrownBound]
) -> tuple[str, ...]:
    """Those won. Of a run too noisy to time, where what is counted decided, none for time."""
    noisy = cv > NOISE_LIMIT or any(fault.code in _OF_TIME for fault in result.faults)
    bounds = [(name, Bound(metric, op, bound)) for name, metric, op, bound in crowns]
    kept = [one for one in bounds if not noisy or _are_counted(evidence, (one[1],))]
    decided = _decide(result, evidence, [bound for _, bound in kept])
    return tuple(name for (name, _), goal in zip(kept, decided, strict=True) if goal.holds is True)


def _are_counted(evidence: Evidence, bounds: Sequence[Bound]) -> bool:
    """Whether nothing that these bounds ask was timed."""
    seen = samples(evidence, (bound.metric for bound in bounds)).values()
    return bool(seen) and all(values.statistic == "exact" for values in seen)


def _faults(result: TrialResult, evidence: Evidence, cv: float, counted: bool) -> tuple[Fault, ...]:
    """The runner's faults, and those that the samples themselves show; one of each code. Where all
    goals are counted, those of timing are none."""
    found = {
        fault.code: fault for fault in result.faults if not (counted and fault.code in _OF_TIME)
    }
    if cv > NOISE_LIMIT and not counted and not _OF_TIME & found.keys():
        found["noise"] = Fault("noise", {"cv": percent(cv)})
    if "too_fast" not in found:
        fault = too_fast(result, evidence)
        if fault is not None:
            found["too_fast"] = fault
    return tuple(found.values())


def _word(result: TrialResult, faults: Sequence[Fault], decided: Sequence[Decision]) -> Word:
    if faults:
        return "invalid"
    if result.flood is not None or any(goal.holds is False for goal in decided):
        return "fail"
    if any(goal.holds is None for goal in decided):
        return "inconclusive"
    return "pass"


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
