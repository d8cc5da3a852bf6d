"""What to do about a build that drafts, or should, by the goal that broke. Pure.

Figures in details are percent, to three significant digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.metrics import Evidence, point_estimates
from engine.trial import TrialResult
from game.rules.draft_costs import LONGEST, chance_of, costs_of
from game.rules.verdict import Remark

DEAR_SHARE = 0.5
"""Share of decode from which on drafting itself is what is too slow."""


def draft_advice(broken: Iterable[str], result: TrialResult) -> tuple[Remark, ...]:
    """In the order of the broken goals, each once; nothing where drafts are not at issue."""
    if not _at_issue(result):
        return ()
    found = (_advice(metric, result) for metric in broken)
    return tuple(dict((one.code, one) for one in found if one is not None).values())


def _at_issue(result: TrialResult) -> bool:
    """Whether the build drafts, or its hall is about drafts."""
    draft = result.config.draft
    asked = any(bound.metric == "lossless" for bound in result.spec.bounds)
    return draft.most > 0 or asked or draft != result.reference_config.draft


def _advice(metric: str, result: TrialResult) -> Remark | None:
    if metric == "lossless":
        return _not_lossless(result)
    paired = result.spec.kind == "paired" and result.reference_config.draft.most == 0
    return _too_slow(result) if metric == "tpot_ratio" and paired else None


def _not_lossless(result: TrialResult) -> Remark | None:
    if result.draft is None:
        return None
    proof, drawn = result.draft.lossless, result.draft.drawn
    if drawn is not None and not drawn.fair:
        return Remark("not_drawn", {"tokens": f"{drawn.tokens:,}"})
    if proof is None or proof.same >= proof.requests:
        return None
    details = {"faults": f"{proof.requests - proof.same:,}", "requests": f"{proof.requests:,}"}
    return Remark("not_lossless", details)


def _too_slow(result: TrialResult) -> Remark | None:
    """Against the same build without a draft: the dearest of what it can change comes first."""
    if result.config.draft.most == 0:
        return Remark("no_draft")
    seen = point_estimates(Evidence.of(result))
    share = seen.get("draft_time_share", 0.0)
    if share >= DEAR_SHARE:
        return Remark("cheaper_draft", {"share": _percent(share)})
    length = result.config.draft.most
    best = _best_length(length, seen)
    if best:
        if best < length:
            return Remark("shorter_draft")
        if best > length:
            return Remark("longer_draft")
    if "acceptance_rate" not in seen:
        return None
    return Remark("better_draft", {"accepted": _percent(seen["acceptance_rate"])})


def _best_length(length: int, seen: Mapping[str, float]) -> int:
    """The length that would gain most, by the formula with this trial's costs and chance; 0 where
    none gains, or nobody knows: then no length is a remedy."""
    even, share = seen.get("break_even_length"), seen.get("draft_time_share")
    tokens = seen.get("acceptance_length")
    costs = None if even is None or share is None else costs_of(length, even, share)
    if costs is None or tokens is None:
        return 0
    return costs.best(chance_of(tokens, length), max(LONGEST, length))


def _percent(share: float) -> str:
    return f"{share * 100:.3g}"
