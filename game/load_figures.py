"""What a served trial tells of one build, over all its loads: by kind of request, and as a whole.

Pure. Times are seconds. Means are over every request of every load; the tail of ITL is the highest
percentile that so many gaps can speak of, with its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median, median_high

import msgspec

from engine.load import RequestKind
from engine.load_metrics import (
    inter_token_gaps,
    memory_use,
    of_kind,
    prefix_hit_rate,
    request_tpot,
    throughput,
    waste_tokens,
)
from engine.metrics import tail
from engine.trial import LoadSample, TrialResult

KINDS: tuple[RequestKind, ...] = ("chat", "document")


class KindFigures(msgspec.Struct, frozen=True):
    """Requests of one kind. `itl_tail` names its statistic: `p99`, or `max of 12`."""

    kind: RequestKind
    requests: int
    prompt_tokens: float
    queueing: float
    ttft: float
    itl_tail: str
    itl: float
    tpot: float


class BuildFigures(msgspec.Struct, frozen=True):
    """One build's loads. Counts are medians over its loads; `kinds` has those that were drawn."""

    kinds: tuple[KindFigures, ...]
    throughput: float
    memory_use: float
    prefix_hit_rate: float
    waste_tokens: float
    preemptions: int
    recomputed_tokens: int
    copies: int
    most_running: int
    mean_running: float
    held_tokens: float
    reserved_tokens: float


def served_figures(result: TrialResult) -> tuple[BuildFigures, BuildFigures] | None:
    """The candidate's and the reference's figures; None where no load was served."""
    if not result.load_pairs:
        return None
    candidate = [pair.candidate for pair in result.load_pairs]
    reference = [pair.reference for pair in result.load_pairs]
    return build_figures(candidate), build_figures(reference)


def build_figures(loads: Sequence[LoadSample]) -> BuildFigures:
    """`loads` has at least one."""
    kinds = (_of_kind(loads, kind) for kind in KINDS)
    counted = [load for load in loads if load.mean_running > 0]
    return BuildFigures(
        kinds=tuple(found for found in kinds if found is not None),
        throughput=median(throughput(load) for load in loads),
        memory_use=median(memory_use(load) for load in loads),
        prefix_hit_rate=median(prefix_hit_rate(load) for load in loads),
        waste_tokens=fmean(waste_tokens(load) for load in counted) if counted else 0.0,
        preemptions=median_high(load.preemptions for load in loads),
        recomputed_tokens=median_high(load.recomputed_tokens for load in loads),
        copies=median_high(load.copies for load in loads),
        most_running=median_high(load.most_running for load in loads),
        mean_running=fmean(load.mean_running for load in loads),
        held_tokens=fmean(load.held_tokens for load in loads),
        reserved_tokens=fmean(load.reserved_tokens for load in loads),
    )


def _of_kind(loads: Sequence[LoadSample], kind: RequestKind) -> KindFigures | None:
    requests = [request for load in loads for request in of_kind(load, kind)]
    if not requests:
        return None
    name, longest = tail([gap for load in loads for gap in inter_token_gaps(load, kind)])
    return KindFigures(
        kind=kind,
        requests=len(requests),
        prompt_tokens=fmean(request.prompt_tokens for request in requests),
        queueing=fmean(request.queued for request in requests),
        ttft=fmean(request.ttft for request in requests),
        itl_tail=name,
        itl=longest,
        tpot=fmean(request_tpot(request) for request in requests),
    )
