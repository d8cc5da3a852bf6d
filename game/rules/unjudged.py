"""Verdicts of trials that came to nothing: no result to judge, and nothing to pay."""

from __future__ import annotations

from collections.abc import Mapping

from game.rules.verdict import Remark, Verdict

_ADVICE: Mapping[str, tuple[str, ...]] = {
    "worker_died": ("try_again", "nothing_lost"),
    "restart_limit": ("see_doctor", "nothing_lost"),
    "aborted": ("nothing_lost",),
    "out_of_memory": ("smaller_footprint", "nothing_lost"),
    "internal": ("see_doctor", "nothing_lost"),
}


def unjudged(code: str, details: Mapping[str, str] | None = None) -> Verdict:
    """An `invalid` verdict for a trial that gave no result.

    `code` is one of worker_died, restart_limit, aborted, out_of_memory, internal; `details` fill
    its text.
    """
    return Verdict(
        word="invalid",
        goals=(),
        metrics={},
        bound_by="none",
        bound_share=0.0,
        phase_bounds={},
        reasons=(Remark(code, dict(details or {})),),
        advice=tuple(Remark(advice) for advice in _ADVICE.get(code, ("nothing_lost",))),
        crowns=(),
        pairs_used=0,
        noise_cv=0.0,
    )
