"""What is measured of a served load: definitions that turn raw loads into figures.

Torch-free and pure. By request: queueing, TTFT, the ITL list, TPOT = (finished - TTFT) / (n - 1).
By load: throughput is output tokens over wall time; use of memory is the share of the token slots
set aside that held a token; the prefix hit rate is the share of prompt tokens found in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain
from statistics import fmean

from engine.load import RequestKind
from engine.machine import Ceilings
from engine.roofline import FLOOR_SLACK, PHASES, MetricError, Phase, phase_floor
from engine.trial import LoadSample, PhaseWork, RequestSample, Work

# By request


def request_tpot(request: RequestSample) -> float:
    """Seconds a token after the first; a request has at least two."""
    return (request.finished - request.ttft) / (request.output_tokens - 1)


def of_kind(sample: LoadSample, kind: RequestKind | None = None) -> tuple[RequestSample, ...]:
    """The load's requests of one kind, or all of them."""
    return tuple(one for one in sample.requests if kind is None or one.kind == kind)


def inter_token_gaps(sample: LoadSample, kind: RequestKind | None = None) -> tuple[float, ...]:
    """Every gap that a reader of this load sees (of one kind of request), in seconds.

    A load has hundreds: `engine.spread.tail` names the percentile that they can speak of.
    """
    return tuple(gap for request in of_kind(sample, kind) for gap in request.gaps)


# By load


def throughput(sample: LoadSample) -> float:
    """Output tokens of every request over the load's wall time, tokens/s."""
    return sample.output_tokens / sample.wall_seconds


def load_ttft(sample: LoadSample) -> float:
    """Mean TTFT over requests, queueing included, in seconds."""
    return fmean(request.ttft for request in sample.requests)


def load_tpot(sample: LoadSample) -> float:
    """Mean TPOT over requests, in seconds."""
    return fmean(request_tpot(request) for request in sample.requests)


def queueing(sample: LoadSample) -> float:
    """Mean seconds a request waited before its first token ran."""
    return fmean(request.queued for request in sample.requests)


def memory_use(sample: LoadSample) -> float:
    """Tokens held over token slots set aside, both means over the load's passes: 0 to 1."""
    return sample.held_tokens / sample.reserved_tokens


def waste_tokens(sample: LoadSample) -> float:
    """Slots set aside and empty, a running request, on the mean."""
    return (sample.reserved_tokens - sample.held_tokens) / sample.mean_running


def prefix_hit_rate(sample: LoadSample) -> float:
    """Share of prompt tokens found in the prefix cache on first admission: 0 to 1."""
    return sample.cached_tokens / sample.prompt_tokens


def recomputed_share(sample: LoadSample) -> float:
    """Share of the prefilled rows that had been computed before a preemption: 0 to 1."""
    return sample.recomputed_tokens / sample.prefilled_tokens


def wall_a_token(sample: LoadSample) -> float:
    """Wall seconds over prompt and output tokens: loads of other lengths compare by it."""
    return sample.wall_seconds / (sample.prompt_tokens + sample.output_tokens)


# Against the machine


def load_phase_seconds(sample: LoadSample, phase: Phase) -> float:
    """Measured seconds of what `PhaseWork` counts: the whole prefill, or a mean decode step."""
    if phase == "prefill":
        return sample.prefill_seconds
    return sample.decode_seconds / sample.decode_steps


def load_ceiling_share(sample: LoadSample, ceilings: Ceilings, phase: Phase) -> float:
    """Physical floor of this load's own work over measured time: 1 is the machine's ceiling.

    Raises:
        MetricError: the load's work was not counted.
    """
    if sample.work is None:
        raise MetricError("this load's work was not counted")
    return phase_floor(sample.work, ceilings, phase) / load_phase_seconds(sample, phase)


def load_faster_than_physics(
    sample: LoadSample, ceilings: Ceilings, slack: float = FLOOR_SLACK
) -> tuple[Phase, float] | None:
    """The phase that beat its floor by more than `slack`, and by what factor; None also for a load
    whose work was not counted."""
    if sample.work is None:
        return None
    for phase in PHASES:
        share = load_ceiling_share(sample, ceilings, phase)
        if share > slack:
            return phase, share
    return None


def mean_work(samples: Iterable[LoadSample]) -> PhaseWork | None:
    """The mean of some loads' counted work; None where none was counted."""
    counted = [sample.work for sample in samples if sample.work is not None]
    if not counted:
        return None
    return PhaseWork(
        counted[0].precision,
        _mean(work.prefill for work in counted),
        _mean(work.decode for work in counted),
    )


def _mean(parts: Iterable[Work]) -> Work:
    every = list(parts)
    return Work(
        bytes_moved=fmean(part.bytes_moved for part in every),
        flops=fmean(part.flops for part in every),
        dispatches=fmean(part.dispatches for part in every),
    )


# Identities


def check_load(sample: LoadSample, tolerance: float = 1e-6) -> None:
    """Refuses a load whose parts do not add up: nothing is judged on a sample that cannot be true.

    Raises:
        MetricError: naming the identity that broke. `tolerance` is seconds.
    """
    requests = (_of_a_request(one, sample, tolerance) for one in sample.requests)
    for holds, identity in chain(_of_the_load(sample, tolerance), chain.from_iterable(requests)):
        if not holds:
            raise MetricError(f"a load breaks an identity: {identity}")


def _of_the_load(sample: LoadSample, tolerance: float) -> Iterator[tuple[bool, str]]:
    requests = sample.requests
    yield bool(requests), "a load has requests"
    parts = (sample.prefill_seconds, sample.decode_seconds, sample.wall_seconds)
    yield all(math.isfinite(part) and part > 0 for part in parts), "durations are positive"
    yield sample.other_seconds >= -tolerance, "no phase claims more than there was"
    total = sample.prefill_seconds + sample.decode_seconds + sample.other_seconds
    yield abs(total - sample.wall_seconds) <= tolerance, "wall = prefill + decode + other"
    last = max(one.finished for one in requests)
    yield abs(last - sample.wall_seconds) <= tolerance, "the load ends with its last token"
    passes = sample.prefill_passes
    yield 1 <= passes <= sample.prefilled_tokens, "every prefill pass ran a token"
    longest = max(one.output_tokens for one in requests)
    after_first = sample.output_tokens - len(requests)
    yield longest - 1 <= sample.decode_steps + sample.preemptions, "one token a step, and no more"
    yield sample.decode_steps <= after_first, "every decode step gave a token"
    yield 1 <= sample.most_running <= len(requests), "only requests of the load were running"
    yield 0 < sample.mean_running <= sample.most_running, "the peak is at least the mean"
    yield 0 < sample.held_tokens <= sample.reserved_tokens, "what is held was set aside"
    yield sample.held_tokens <= sample.peak_live_tokens, "the peak is at least the mean"
    yield sample.preemptions == sum(one.preemptions for one in requests), "preemptions add up"
    yield 0 <= sample.recomputed_tokens <= sample.prefilled_tokens, "recomputed rows are prefilled"
    yield requests[0].cached_tokens == 0, "the first request finds an empty cache"
    again = sample.recomputed_tokens + sample.preemptions  # the last one sampled is run with them
    if sample.preemptions == 0:
        yield again == 0, "without a preemption nothing is computed twice"
    computed = sample.prefilled_tokens + sample.cached_tokens - again
    yield computed == sample.prompt_tokens, "a prompt token is computed or found, once"


def _of_a_request(
    one: RequestSample, sample: LoadSample, tolerance: float
) -> Iterator[tuple[bool, str]]:
    yield one.prompt_tokens >= 1 and one.output_tokens >= 2, "a request has a prompt and an answer"
    yield len(one.gaps) == one.output_tokens - 1, "one gap a token after the first"
    yield all(math.isfinite(gap) and gap > 0 for gap in one.gaps), "gaps are positive"
    spoken = one.ttft + sum(one.gaps)
    yield abs(spoken - one.finished) <= tolerance, "finished = TTFT + gaps"
    yield 0 <= one.queued < one.ttft <= one.finished, "queued, then first token, then finished"
    yield one.finished <= sample.wall_seconds + tolerance, "no request outlasts its load"
    yield 0 <= one.cached_tokens < one.prompt_tokens, "the last prompt token is always run"
    yield one.preemptions >= 0, "preemptions are counted"
