"""What bound a run: counted work against the machine's measured ceilings. Pure.

A run of one batch and a served load are held to the same two questions: which ceiling each phase
lay nearest to, and whether any of them was faster than the machine can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Literal

from engine.intervals import Decision
from engine.load_metrics import load_faster_than_physics, load_phase_seconds
from engine.metrics import Evidence, Phase, binding, faster_than_physics, phase_seconds
from engine.trial import Fault, TrialResult
from game.rules.verdict import BoundBy

MISSED: Mapping[str, Phase | Literal["capacity", "quality"]] = {
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
    "prefix_hit_rate": "prefill",
    "throughput_ratio": "decode",
    "throughput": "decode",
    "memory_ratio": "capacity",
    "memory_bytes": "capacity",
    "live_tokens": "capacity",
    "vessel_share": "capacity",
    "kv_request_mb": "capacity",
    "memory_use": "capacity",
    "reference_use": "capacity",
    "queueing": "capacity",
    "recomputed_share": "capacity",
    "weight_share": "capacity",
    "average_bits": "capacity",
    "four_bit_gain": "decode",
    "acceptance_rate": "decode",
    "acceptance_length": "decode",
    "draft_time_share": "decode",
    "break_even_length": "decode",
    "break_even_acceptance": "decode",
    "lossless": "quality",
    "kl": "quality",
    "top1": "quality",
    "perplexity_ratio": "quality",
    "probes_right": "quality",
}
"""What names the bound of a run when a goal on this metric breaks. Requests queue, and are computed
twice, for want of room."""

PhaseBounds = dict[str, tuple[BoundBy, float]]
"""Phase -> the resource with the largest floor, and that floor's share of the median time."""


def phase_bounds(evidence: Evidence) -> PhaseBounds:
    """Of the candidate, by phase; empty where nothing was timed."""
    phases: tuple[Phase, ...] = ("prefill", "decode")
    found: PhaseBounds = {}
    for phase in phases:
        seconds = [phase_seconds(run, phase) for run in evidence.candidate_runs]
        seconds += [load_phase_seconds(load, phase) for load in evidence.candidate_loads]
        if seconds:
            counted = evidence.work.prefill if phase == "prefill" else evidence.work.decode
            word, floor = binding(counted, evidence.work.precision, evidence.ceilings)
            found[phase] = (word, floor / median(seconds))
    return found


def longest_phase(metrics: Mapping[str, float]) -> str:
    """The phase that took most of the time: prefill or decode."""
    shares = {phase: metrics.get(f"{phase}_time_share", 0.0) for phase in ("decode", "prefill")}
    return max(shares, key=lambda phase: shares[phase])


def bound_by(
    phases: PhaseBounds, metrics: Mapping[str, float], broken: Decision | None
) -> tuple[BoundBy, float]:
    """What bound the run: the goal that broke names it, else the phase that took longest.

    The share is of that phase's ceiling; capacity and quality have no ceiling in seconds, so 0.
    """
    missed = MISSED.get(broken.metric) if broken is not None else None
    if missed == "capacity" or missed == "quality":
        return missed, 0.0
    if not phases:
        return "none", 0.0
    return phases[missed or longest_phase(metrics)]


def too_fast(result: TrialResult, evidence: Evidence) -> Fault | None:
    """Both builds are held to the floor: a reference that is too fast is no reference."""
    builds = (
        (evidence.candidate_runs, result.candidate_work),
        (tuple(pair.reference for pair in result.pairs), result.reference_work),
    )
    beaten = [
        faster_than_physics(run, work, result.ceilings) for runs, work in builds for run in runs
    ]
    loads = (*evidence.candidate_loads, *evidence.reference_loads)
    beaten += [load_faster_than_physics(load, result.ceilings) for load in loads]
    for found in beaten:
        if found is not None:
            phase, share = found
            return Fault("too_fast", {"phase": phase, "share": f"{share * 100:.0f}"})
    return None
