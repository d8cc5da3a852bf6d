"""A metric's value as it is read, by the metric's kind and unit."""

from __future__ import annotations

from engine.metrics import METRICS
from game.widgets.figures import duration, plain_number, share, size, times


def metric_figure(metric: str, value: float) -> str:
    """`value` with its unit: "7.9 x", "71 %", "16.4 ms"; a metric not known is a bare number."""
    known = METRICS.get(metric)
    if known is None:
        return plain_number(value)
    if known.kind == "ratio":
        return f"{times(value)} x"
    if known.kind == "share":
        return share(value)
    if known.unit == "s":
        return duration(value)
    if known.unit == "bytes":
        return size(value)
    if known.unit == "tokens":
        # Counted, and compared with round bounds: 8,192 is not 8,190. The name says what it counts.
        return f"{value:,.0f}"
    if known.unit == "bits/weight":
        return plain_number(value)  # the name says it, and the row has no room to say it twice
    return f"{plain_number(value)} {known.unit}".rstrip()
