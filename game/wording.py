"""Figures, remarks and bounds in the player's words, for screens, reports and plain text alike."""

from __future__ import annotations

from collections.abc import Callable

from engine.metrics import METRICS
from game.rules.verdict import Remark
from game.widgets.figures import plain_number, share, times

Say = Callable[..., str]


def figure(metric: str, value: float) -> str:
    """A metric's value with the unit it is read in."""
    known = METRICS.get(metric)
    if known is None:
        return plain_number(value)
    if known.kind == "ratio":
        return f"{times(value)} x"
    if known.kind == "share":
        return share(value)
    if known.unit == "tokens":
        return f"{value:,.0f}"  # things are told to the last one
    return f"{plain_number(value)} %" if known.unit == "%" else plain_number(value)


def remark_words(say: Say, remark: Remark) -> str:
    """A remark with its details, names of metrics and phases in the player's language."""
    details = dict(remark.details)
    if "metric" in details:
        details["metric"] = say(f"metric.{details['metric']}")
    if details.get("phase") in ("prefill", "decode"):
        details["phase"] = say(f"piece.phase.{details['phase']}")
    return say(f"remark.{remark.code}", **details)


def bound_words(say: Say, bound: str) -> str:
    return say(f"bound.{bound.replace(' ', '_')}")
