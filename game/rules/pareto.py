"""The Pareto front of builds: those no other build beats on everything at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.metrics import METRICS

AXES = ("decode_throughput", "memory_bytes", "kl")
DEAD_BAND = 0.01
"""Two figures within 1 % of one another count as equal, as in every verdict."""
KL_GRAIN = 1e-6
"""Nats a token: below this a KL divergence is rounding."""


@dataclass(frozen=True)
class Point:
    """What a build measured, by metric; `build` names it, `digest` the record it stands on."""

    build: str
    digest: str
    figures: Mapping[str, float]


def front(points: Sequence[Point], axes: Sequence[str] = AXES) -> tuple[Point, ...]:
    """The points that no other dominates; those lacking an axis cannot be compared: left out."""
    whole = [point for point in points if all(axis in point.figures for axis in axes)]
    return tuple(
        point
        for point in whole
        if not any(dominates(other.figures, point.figures, axes) for other in whole)
    )


def dominates(
    left: Mapping[str, float], right: Mapping[str, float], axes: Sequence[str] = AXES
) -> bool:
    """True where `left` is nowhere worse than `right` and somewhere better, beyond the band."""
    leads = [_lead(axis, left[axis], right[axis]) for axis in axes]
    return min(leads) >= 0 and max(leads) > 0


def trades(
    left: Mapping[str, float], right: Mapping[str, float], axes: Sequence[str] = AXES
) -> bool:
    """True where each is better than the other somewhere, beyond the band: a real choice."""
    leads = [_lead(axis, left[axis], right[axis]) for axis in axes]
    return min(leads) < 0 < max(leads)


def _lead(axis: str, left: float, right: float) -> int:
    """1 where `left` is better, -1 where it is worse, 0 within the dead band."""
    band = max(DEAD_BAND * max(abs(left), abs(right)), KL_GRAIN if axis == "kl" else 0.0)
    if abs(left - right) <= band:
        return 0
    return 1 if (left > right) == (METRICS[axis].better == "higher") else -1
