"""One load on the clock: every request handed in at once, served to the last token.

As `engine.measure.timing` times one run, this times a load: the clock is read around each `step()`,
and what the cache holds is counted between steps, off their own time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.config import SamplingConfig
from engine.load import RequestKind
from engine.load_metrics import check_load
from engine.measure.asking import asked_for
from engine.measure.timing import (
    GREEDY,
    Clock,
    Phase,
    StepSeen,
    TimedEngine,
    check_counts,
    collector_off,
    output_digest,
    system_clock,
)
from engine.run.outputs import OnPart
from engine.trial import LoadSample, RequestSample


class ServedStep(StepSeen, Protocol):
    """What a step of a serving engine tells beside its tokens."""

    @property
    def sequence_ids(self) -> tuple[int, ...]: ...

    @property
    def rows(self) -> int: ...

    @property
    def admitted(self) -> Mapping[int, int]: ...

    @property
    def preempted(self) -> tuple[int, ...]: ...


class Counters(Protocol):
    """What an engine has counted since its last reset."""

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def prefilled_tokens(self) -> int: ...

    @property
    def recomputed_tokens(self) -> int: ...

    @property
    def preemptions(self) -> int: ...

    @property
    def copies(self) -> int: ...


class ServingEngine(TimedEngine, Protocol):
    """The part of `engine.run.engine.Engine` that a load needs."""

    def step(self, on_part: OnPart = ...) -> ServedStep: ...

    @property
    def reserved_tokens(self) -> int: ...

    @property
    def running(self) -> int: ...

    @property
    def counters(self) -> Counters: ...


class CountFault(Exception):
    """The engine's own counts and what its steps told do not agree; the message says which."""


@dataclass(frozen=True)
class LoadRequest:
    """One request of a load: what kind it is, its prompt, and how many tokens it asks for."""

    kind: RequestKind
    prompt: tuple[int, ...]
    output: int


@dataclass(frozen=True)
class LoadEpisode:
    """One served load: what was measured, and every request's prompt and output tokens."""

    sample: LoadSample
    prompts: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


OnServedStep = Callable[[Phase, int, int], None]
"""Called between steps, off the step's own clock: the phase, the number of sequences that ran, and
how many requests of the load have finished."""


@dataclass
class _Watch:
    """What is seen of one request, in the clock's nanoseconds."""

    request: LoadRequest
    first_run: int | None = None
    tokens: list[int] = field(default_factory=list)
    moments: list[int] = field(default_factory=list)
    cached: int | None = None
    preemptions: int = 0

    def sample(self, start: int) -> RequestSample:
        assert self.first_run is not None and self.moments
        gaps = zip(self.moments, self.moments[1:], strict=False)
        return RequestSample(
            kind=self.request.kind,
            prompt_tokens=len(self.request.prompt),
            output_tokens=len(self.tokens),
            cached_tokens=self.cached or 0,
            queued=(self.first_run - start) / 1e9,
            ttft=(self.moments[0] - start) / 1e9,
            finished=(self.moments[-1] - start) / 1e9,
            gaps=tuple((after - before) / 1e9 for before, after in gaps),
            preemptions=self.preemptions,
        )


@dataclass
class _Passes:
    """What is added up over the passes of a load; seconds in nanoseconds."""

    spent: dict[Phase, int] = field(default_factory=lambda: {"prefill": 0, "decode": 0})
    counts: dict[Phase, int] = field(default_factory=lambda: {"prefill": 0, "decode": 0})
    prefill_rows: int = 0
    preemptions: int = 0
    held: int = 0
    reserved: int = 0
    running: int = 0
    peak_held: int = 0
    most_running: int = 0

    def saw(self, step: ServedStep, nanoseconds: int, engine: ServingEngine) -> None:
        self.spent[step.phase] += nanoseconds
        self.counts[step.phase] += 1
        self.prefill_rows += step.rows if step.phase == "prefill" else 0
        self.preemptions += len(step.preempted)
        running = engine.running
        self.held += engine.held_tokens
        self.reserved += engine.reserved_tokens
        self.running += running
        self.peak_held = engine.most_held_tokens
        self.most_running = max(self.most_running, running, len(step.sequence_ids))

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def run_load(
    engine: ServingEngine,
    requests: Sequence[LoadRequest],
    clock: Clock = system_clock,
    on_step: OnServedStep | None = None,
    sampling: SamplingConfig = GREEDY,
) -> LoadEpisode:
    """Hand every request in, serve them all, and time each step.

    Each request's length is fixed (end-of-text is ignored), tokens are drawn as `sampling` says.
    Starts from an empty cache, prefix
    cache included. The load starts when the first request is handed in and ends with the last step.

    Raises:
        OutputFault: a request gave another number of tokens than it was asked for.
        CountFault: the engine's counters and its steps do not agree.
        MetricError: the parts do not add up.
    """
    params = [asked_for(sampling, one.prompt, one.output, to_the_end=True) for one in requests]
    engine.reset()
    watches: dict[int, _Watch] = {}
    passes = _Passes()
    with collector_off():
        start = ended = clock()
        for request, wanted in zip(requests, params, strict=True):
            watches[engine.add_request(request.prompt, wanted)] = _Watch(request)
        finished = 0
        while engine.has_work:
            began = clock()
            step = engine.step()
            ended = clock()
            passes.saw(step, ended - began, engine)
            finished += _note(watches, step, began, ended)
            if on_step is not None:
                on_step(step.phase, len(step.sequence_ids), finished)
    outputs = tuple(tuple(watch.tokens) for watch in watches.values())
    check_counts(outputs, [request.output for request in requests])
    sample = _sample(engine.counters, watches, passes, start, ended, output_digest(outputs))
    check_load(sample)
    return LoadEpisode(sample, tuple(request.prompt for request in requests), outputs)


def _note(watches: Mapping[int, _Watch], step: ServedStep, began: int, ended: int) -> int:
    """Write down what a step did for each request; returns how many it finished."""
    finished = 0
    for identity, cached in step.admitted.items():
        watch = watches[identity]
        if watch.cached is None:  # later admissions find what the request itself left behind
            watch.cached = cached
    for identity in step.preempted:
        watches[identity].preemptions += 1
    for identity in step.sequence_ids:
        watch = watches[identity]
        if watch.first_run is None:
            watch.first_run = began
    for identity, tokens in step.tokens.items():
        watch = watches[identity]
        watch.tokens.extend(tokens)
        watch.moments.extend([ended] * len(tokens))
        finished += len(watch.tokens) == watch.request.output
    return finished


def _sample(
    counters: Counters,
    watches: Mapping[int, _Watch],
    passes: _Passes,
    start: int,
    ended: int,
    digest: str,
) -> LoadSample:
    _check_counters(counters, watches, passes)
    wall = ended - start
    spent = passes.spent
    return LoadSample(
        requests=tuple(watch.sample(start) for watch in watches.values()),
        prefill_seconds=spent["prefill"] / 1e9,
        decode_seconds=spent["decode"] / 1e9,
        other_seconds=(wall - spent["prefill"] - spent["decode"]) / 1e9,
        wall_seconds=wall / 1e9,
        prefill_passes=passes.counts["prefill"],
        decode_steps=passes.counts["decode"],
        prefilled_tokens=passes.prefill_rows,
        recomputed_tokens=counters.recomputed_tokens,
        preemptions=passes.preemptions,
        held_tokens=passes.held / passes.total,
        reserved_tokens=passes.reserved / passes.total,
        peak_live_tokens=passes.peak_held,
        most_running=passes.most_running,
        copies=counters.copies,
        output_digest=digest,
        mean_running=passes.running / passes.total,
    )


def _check_counters(counters: Counters, watches: Mapping[int, _Watch], passes: _Passes) -> None:
    """Two counts of one thing: the engine's own, and that of whoever watched its steps."""
    watched = watches.values()
    told = {
        "prompt tokens": (
            counters.prompt_tokens,
            sum(len(watch.request.prompt) for watch in watched),
        ),
        "cached tokens": (counters.cached_tokens, sum(watch.cached or 0 for watch in watched)),
        "prefilled tokens": (counters.prefilled_tokens, passes.prefill_rows),
        "preemptions": (counters.preemptions, passes.preemptions),
    }
    for name, (counted, seen) in told.items():
        if counted != seen:
            raise CountFault(f"the engine counts {counted} {name} and its steps told of {seen}")
