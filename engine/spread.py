"""How far samples lie apart: variation, and the tails that so many samples can speak of.

Torch-free and pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from engine.roofline import MetricError

PERCENTILES = ((99, 662), (95, 130), (90, 64))
"""A percentile and the fewest samples that say something of it (see `tail`)."""


def variation(values: Sequence[float]) -> float:
    """Coefficient of variation (standard deviation over mean); 0 for fewer than two values."""
    return stdev(values) / fmean(values) if len(values) > 1 else 0.0


def tail(values: Sequence[float]) -> tuple[str, float]:
    """The highest percentile these samples can speak of, by nearest rank, with its name.

    p90 from 64 samples, p95 from 130, p99 from 662; below that it is the largest of n, and says so.

    Raises:
        MetricError: no samples.
    """
    if not values:
        raise MetricError("a tail needs at least one sample")
    ordered = sorted(values)
    for percent, enough in PERCENTILES:
        if len(ordered) >= enough:
            return f"p{percent}", ordered[math.ceil(len(ordered) * percent / 100) - 1]
    return f"max of {len(ordered)}", ordered[-1]
