"""What drafts gave and cost: figures of one run, and of one beside the same build without a draft.

Torch-free and pure. `engine.metrics` gives them their names' kinds and units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

from engine.draft_report import DraftReport
from engine.run_metrics import acceptance_length, acceptance_rate, draft_share
from engine.trial import Pair, RunSample

OF_A_RUN: Mapping[str, Callable[[RunSample], float]] = {
    "acceptance_rate": acceptance_rate,
    "acceptance_length": acceptance_length,
    "draft_time_share": draft_share,
}


def break_even_length(pair: Pair) -> float:
    """Tokens that a mean decode step must give for drafting to pay: its seconds over those of a
    step of the reference, which does not draft. Between builds that differ in more, what of it is
    the draft's cannot be told."""
    return fmean(pair.candidate.step_seconds) / fmean(pair.reference.step_seconds)


def break_even_acceptance(pair: Pair) -> float | None:
    """The share of drafted tokens that must stand for drafts of the candidate's whole length to
    pay on this machine; None where all would have to, and more."""
    draft = pair.candidate.draft
    if draft is None or not draft.counters.offered:
        return None
    share = (break_even_length(pair) - 1) / len(draft.counters.offered)
    return max(share, 0.0) if share <= 1 else None


def report_figures(report: DraftReport) -> dict[str, float]:
    """`lossless` is the share of answers that are the same as without a draft, near-ties excused;
    of sampled answers, which differ anyway, 1 where they were drawn from the model's own
    distribution and 0 where not. Left out where nothing was compared."""
    if report.drawn is not None:
        return {"lossless": float(report.drawn.fair)}
    proof = report.lossless
    return {} if proof is None or not proof.requests else {"lossless": proof.same / proof.requests}
