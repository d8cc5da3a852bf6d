"""What a machine cannot beat: counted work against its own measured ceilings.

Torch-free and pure. Work is bytes that must move, operations that must run, and operator calls; a
ceiling is the best rate this device was seen to reach. The largest of the three times binds.
"""

from __future__ import annotations

from typing import Literal

from engine.machine import Ceilings
from engine.trial import PhaseWork, Work

Phase = Literal["prefill", "decode"]
Resource = Literal["bandwidth", "compute", "launch overhead"]

PHASES: tuple[Phase, ...] = ("prefill", "decode")

FLOOR_SLACK = 1.05
"""A run above this share of its measured ceiling is not believed."""


class MetricError(ValueError):
    """A sample that cannot be true, or a metric that this trial does not have."""


def floor_seconds(work: Work, precision: str, ceilings: Ceilings) -> dict[Resource, float]:
    """What each resource alone would take: bytes / bandwidth, operations / rate, calls x cost.

    Raises:
        MetricError: the precision's matmul rate was never measured.
    """
    if precision not in ceilings.flops_per_second:
        known = ", ".join(sorted(ceilings.flops_per_second))
        raise MetricError(f"no measured matmul rate for {precision}; measured: {known}")
    return {
        "bandwidth": work.bytes_moved / ceilings.read_bytes_per_second,
        "compute": work.flops / ceilings.flops_per_second[precision],
        "launch overhead": work.dispatches * ceilings.dispatch_seconds,
    }


def binding(work: Work, precision: str, ceilings: Ceilings) -> tuple[Resource, float]:
    """The resource with the largest floor, and that floor in seconds: what binds this work."""
    floors = floor_seconds(work, precision, ceilings)
    word = max(floors, key=lambda name: floors[name])
    return word, floors[word]


def physical_floor(work: Work, precision: str, ceilings: Ceilings) -> float:
    """Seconds no honest run can beat: the bytes that must move, or the operations that must run.

    Operator calls are left out: a cheaper way to call is an improvement, not a fault.
    """
    floors = floor_seconds(work, precision, ceilings)
    return max(floors["bandwidth"], floors["compute"])


def phase_floor(work: PhaseWork, ceilings: Ceilings, phase: Phase) -> float:
    """The physical floor of one phase: the whole prefill, or one mean decode step."""
    counted = work.prefill if phase == "prefill" else work.decode
    return physical_floor(counted, work.precision, ceilings)
