"""The cliff: where a model in fewer bits stops being itself. Pure.

KL is the mean divergence from the full model in nats a token. At one nat the words that the full
model would say keep e^-1, some 37 %, of their probability (in the geometric mean), and what is
written is no longer an answer. Quality has no edge of its own: this is where the game draws it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from engine.quality_report import Quality, Rung
from engine.trial import TrialResult
from game.rules.verdict import FALLEN, Remark

CLIFF_KL = 1.0
"""Nats a token: a model whose KL reaches it has fallen."""

UNBROKEN = "none"
"""What is said of a ladder no rung of which lies past the cliff."""


def past_the_cliff(kl: float) -> bool:
    """A divergence that is not finite is past everything."""
    return not math.isfinite(kl) or kl >= CLIFF_KL


def fell(quality: Quality | None) -> bool:
    """Whether a model of this quality has fallen; one that nobody looked at has not."""
    return quality is not None and past_the_cliff(quality.kl)


def build_fell(result: TrialResult) -> bool:
    """Whether the trial's build fell, its weights being kept in fewer bits."""
    return result.quantised is not None and fell(result.quality)


def breaking_bits(ladder: Iterable[Rung]) -> str:
    """The widest width at which rounding to nearest falls, as a word: `8`, `4`, `3`, `2`, or `none`
    where every rung holds."""
    fallen = [rung.bits for rung in ladder if past_the_cliff(rung.kl)]
    return str(max(fallen)) if fallen else UNBROKEN


def ladder_words(result: TrialResult) -> dict[str, str]:
    """What the trial's ladder says by name; nothing where rungs that were asked for are missing,
    since the widest of them could be the one that broke."""
    measured = {rung.bits for rung in result.ladder}
    if not measured or not measured >= set(result.spec.ladder):
        return {}
    return {"breaking_bits": breaking_bits(result.ladder)}


def over_the_cliff(quality: Quality) -> Remark:
    """Why such a trial failed."""
    details = {
        "kl": f"{quality.kl:.3g}",
        "cliff": f"{CLIFF_KL:g}",
        "top1": f"{quality.top1 * 100:.0f}",
    }
    return Remark(FALLEN, details)
