"""Why a verdict is what it is, and what to do about it: codes and details of interface text. Pure.

Figures in details are rounded for reading; sizes are in MB of 10^6 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.intervals import Decision
from engine.metrics import METRICS
from engine.trial import Fault, Flood, TrialResult
from game.rules.cliff import build_fell, over_the_cliff
from game.rules.draft_advice import draft_advice
from game.rules.verdict import FLOODED, BoundBy, Remark, Word
from game.rules.weight_advice import weight_advice

NOISE_BANNER = 0.10

LEVERS: Mapping[BoundBy, str] = {
    "bandwidth": "move_fewer_bytes",
    "compute": "less_arithmetic",
    "launch overhead": "fewer_calls",
    "capacity": "smaller_footprint",
    "quality": "more_bits",
}
SETTLE: Mapping[str, str] = {
    "noise": "close_noisy_programs",
    "unstable": "close_noisy_programs",
    "throttled": "let_it_cool",
    "too_fast": "measure_machine_again",
    "wrong_output": "report_wrong_output",
    "worker_died": "try_again",
    "aborted": "try_again",
}
"""Fault code -> the advice that says what to do about it."""

_ROOM_GOALS: Mapping[str, str] = {"live_tokens": "hold_more", "memory_use": "waste_less"}
"""Goals of room that break though the vessel held, and the advice for each."""


def reasons(
    word: Word, faults: Sequence[Fault], decided: Sequence[Decision], result: TrialResult
) -> tuple[Remark, ...]:
    """A build that fell says so first, and which goals it broke after."""
    if word == "invalid":
        return tuple(Remark(fault.code, fault.details) for fault in faults)
    if result.flood is not None:
        return (flooded(result.flood),)
    if word == "pass":
        return (Remark("all_hold" if decided else "nothing_to_fail"),)
    fallen: tuple[Remark, ...] = ()
    if word == "fail" and build_fell(result) and result.quality is not None:
        fallen = (over_the_cliff(result.quality),)
    broken = tuple(_remark("goal_broken", goal) for goal in decided if goal.holds is False)
    return fallen + broken + tuple(_open(goal) for goal in decided if goal.holds is None)


def flooded(flood: Flood) -> Remark:
    """The account of the moment in which the budget broke."""
    ledger = flood.ledger
    details = {
        "budget": megabytes(ledger.budget or 0),
        "held": megabytes(ledger.reserved_bytes),
        "asked": megabytes(flood.asked_bytes),
        "free": megabytes(flood.free_bytes),
        "over": megabytes(flood.asked_bytes - flood.free_bytes),
        "running": f"{flood.running:,}",
        "requests": f"{flood.requests:,}",
        "fits": f"{flood.fits:,}",
        "tokens": f"{ledger.live_tokens:,}",
    }
    return Remark(FLOODED, details)


def advice(
    word: Word,
    faults: Iterable[Fault],
    bound_by: BoundBy,
    cv: float,
    decided: Sequence[Decision],
    result: TrialResult,
) -> tuple[Remark, ...]:
    """What to do next, in the order to try it; nothing twice.

    What can be said of the weights and of drafts is said of every goal they broke; otherwise the
    first broken goal and what bound the run name one lever.
    """
    codes: dict[str, Remark] = {}
    if word == "invalid":
        for fault in faults:
            code = SETTLE.get(fault.code, "try_again")
            codes[code] = Remark(code)
        codes["nothing_lost"] = Remark("nothing_lost")
    elif word == "inconclusive":
        codes["close_noisy_programs"] = Remark("close_noisy_programs")
        codes["widen_margin"] = Remark("widen_margin")
        codes["nothing_lost"] = Remark("nothing_lost")
    elif word == "fail":
        broken = [goal.metric for goal in decided if goal.holds is False]
        named: tuple[Remark, ...] = ()
        code = LEVERS.get(bound_by, "")
        if result.flood is None and broken:
            named = tuple(Remark(one) for one in weight_advice(broken, result))
            named += draft_advice(broken, result)
            code = _ROOM_GOALS.get(broken[0], code)
        if code and not named:
            named = (Remark(code),)
        codes |= {one.code: one for one in named}
    if word != "invalid" and cv > NOISE_BANNER:
        codes["noisy_machine"] = Remark("noisy_machine", {"cv": percent(cv)})
    return tuple(codes.values())


def percent(share: float) -> str:
    return f"{share * 100:.0f}"


def megabytes(count: float) -> str:
    """10^6 bytes, three significant digits."""
    size = count / 1e6
    return f"{size:,.0f}" if abs(size) >= 100 else f"{size:.3g}"


def _open(goal: Decision) -> Remark:
    if goal.estimate.bounded:
        return _remark("straddles", goal)
    return Remark("not_enough_samples", {"metric": goal.metric})


def _remark(code: str, goal: Decision) -> Remark:
    """`metric` is a metric's name: the interface shows its `metric.<name>` text."""

    metric = METRICS[goal.metric]

    def figure(value: float) -> str:
        if metric.unit == "tokens":  # told to the last one
            return f"{value:,.0f}"
        return f"{value * 100:.3g} %" if metric.kind == "share" else f"{value:.3g}"

    details = {
        "metric": goal.metric,
        "measured": figure(goal.estimate.point),
        "op": goal.op,
        "bound": figure(goal.bound),
        "low": figure(goal.estimate.low),
        "high": figure(goal.estimate.high),
    }
    return Remark(code, details)
