"""What became of a build's drafts, in words: rows for the verdict's details and for reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

from engine.draft_report import Drawn, Lossless
from engine.metrics import Evidence
from engine.trial import DraftCounters, RunSample
from game.outcome import Outcome
from game.widgets.figures import plain_number, share

Say = Callable[..., str]
Row = tuple[str, str]
"""(name, figure)."""


def draft_rows(say: Say, outcome: Outcome) -> list[Row]:
    """What stood, where decode went, what breaks even, the proof; none where nobody drafted."""
    result = outcome.result
    if result is None:
        return []
    runs = [run for run in Evidence.of(result).candidate_runs if run.draft is not None]
    rows: list[Row] = []
    if runs:
        rows += _stood(say, runs) + _time(say, runs)
        rows += _break_even(say, outcome.verdict.metrics, _summed(runs))
    if result.draft is not None and result.draft.lossless is not None:
        rows.append((say("detail.draft.lossless"), _proof(say, result.draft.lossless)))
    if result.draft is not None and result.draft.drawn is not None:
        rows.append((say("detail.draft.lossless"), _draws(say, result.draft.drawn)))
    return rows


def _summed(runs: Sequence[RunSample]) -> DraftCounters:
    """The counters of every run added up, place by place."""
    counted = [run.draft.counters for run in runs if run.draft is not None]
    offered = zip_longest(*(one.offered for one in counted), fillvalue=0)
    stood = zip_longest(*(one.stood for one in counted), fillvalue=0)
    return DraftCounters(
        steps=sum(one.steps for one in counted),
        bare=sum(one.bare for one in counted),
        offered=tuple(sum(place) for place in offered),
        stood=tuple(sum(place) for place in stood),
    )


def _stood(say: Say, runs: Sequence[RunSample]) -> list[Row]:
    """How much of what was drafted stood, in all and by its place in the draft."""
    counted = _summed(runs)
    accepted, drafted = counted.accepted, counted.drafted
    steps = counted.steps + counted.bare
    told = say(
        "detail.draft.figures",
        accepted=f"{accepted:,}",
        drafted=f"{drafted:,}",
        rate=share(accepted / drafted if drafted else 0.0),
        length=plain_number(1 + accepted / steps if steps else 1.0),
    )
    places = [
        say("detail.draft.place", place=place, rate=share(stood / offered))
        for place, (offered, stood) in enumerate(
            zip(counted.offered, counted.stood, strict=False), 1
        )
        if offered
    ]
    rows = [(say("metric.acceptance_rate"), told)]
    return rows + ([(say("detail.draft.places"), ", ".join(places))] if places else [])


def _time(say: Say, runs: Sequence[RunSample]) -> list[Row]:
    """Shares of the decode phase: drafting, verifying, and the rest, which sum to 1."""
    whole = sum(run.decode_seconds for run in runs)
    if whole <= 0:
        return []
    samples = [run.draft for run in runs if run.draft is not None]
    draft = sum(one.draft_seconds for one in samples) / whole
    verify = sum(one.verify_seconds for one in samples) / whole
    told = say(
        "detail.draft.time.figures",
        draft=share(draft),
        verify=share(verify),
        rest=share(max(1 - draft - verify, 0.0)),
    )
    return [(say("detail.draft.time"), told)]


def _break_even(say: Say, metrics: Mapping[str, float], counted: DraftCounters) -> list[Row]:
    """What this draft had to give to pay: tokens a step, and the share of drafted tokens that gives
    them; that none does, where the trial found none."""
    length, rate = metrics.get("break_even_length"), metrics.get("break_even_acceptance")
    most = len(counted.offered)
    if length is None or not most:
        return []
    figure = plain_number(length)
    if rate is None:
        told = say("detail.draft.even.never", length=figure, most=most)
    else:
        told = say("detail.draft.even.figures", length=figure, rate=share(rate))
    return [(say("detail.draft.even"), told)]


def _draws(say: Say, drawn: Drawn) -> str:
    return say(
        "detail.draft.lossless." + ("drawn" if drawn.fair else "not_drawn"),
        tokens=f"{drawn.tokens:,}",
        distance=plain_number(drawn.distance),
        chance=f"{drawn.chance:.2g}",
    )


def _proof(say: Say, proof: Lossless) -> str:
    faults = proof.requests - proof.same
    if faults:
        key = "detail.draft.lossless.faults"
    else:
        key = "detail.draft.lossless." + ("ties" if proof.near_ties else "same")
    return say(
        key,
        requests=f"{proof.requests:,}",
        identical=f"{proof.identical:,}",
        ties=f"{proof.near_ties:,}",
        faults=f"{faults:,}",
        widest=plain_number(proof.widest),
    )
