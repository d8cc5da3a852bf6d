"""What drafts gave and cost: figures of one run, and of one beside the same build without a draft.

Torch-free and pure. `engine.metrics` gives them their names' kinds and units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean

from engine.draft_report import DraftReport
from engine.run_metrics import acceptance_length, acceptance_rate, draft_share
from engine.speculate.formula import break_even
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
    """The acceptance rate from which on a draft of the candidate's length pays on this machine, as
    the formula has it, with the costs that were measured; None where none does."""
    draft, step = pair.candidate.draft, fmean(pair.reference.step_seconds)
    if draft is None or not draft.counters.offered:
        return None
    steps = len(pair.candidate.step_seconds)
    length = len(draft.counters.offered)
    drafting = draft.draft_seconds / steps / step
    whole = break_even_length(pair)
    return break_even(length, drafting / length, whole - drafting)


def report_figures(report: DraftReport) -> dict[str, float]:
    """`lossless` is the share of answers that are the same as without a draft, near-ties excused;
    left out where nothing was compared."""
    proof = report.lossless
    return {} if proof is None or not proof.requests else {"lossless": proof.same / proof.requests}
