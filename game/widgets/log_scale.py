"""A logarithmic axis: how far along it a value lies."""

from __future__ import annotations

from math import log


def log_part(value: float, low: float, high: float) -> float:
    """From 0 at `low` to 1 at `high`, both positive; what lies beyond stands at the end."""
    return log(min(max(value, low), high) / low) / log(high / low)
