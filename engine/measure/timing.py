"""One run on the clock: an engine's episode, timed phase by phase around `step()`.

The engine never reads a clock; this module does nothing else. The clock is handed in, so that
tests can bring one that tells the time they need. Nothing measured here is ever discarded: warm-up
runs are the only ones dropped, by a rule fixed beforehand.
"""

from __future__ import annotations

import gc
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, Protocol

import msgspec

from engine.config import SamplingConfig
from engine.measure.asking import asked_for
from engine.measure.drafted import DraftWatch, merge_drafts
from engine.run.outputs import OnPart
from engine.run_metrics import check_sample
from engine.schedule.sequence import SamplingParams
from engine.speculate.speculator import DraftTally, Verified
from engine.trial import RunSample

Clock = Callable[[], int]
"""Monotonic nanoseconds."""

Phase = Literal["prefill", "decode"]
Prompts = Sequence[Sequence[int]]

GREEDY = SamplingConfig()

TIMED_UNIT_SECONDS = 0.05
WARM_UP_FEWEST, WARM_UP_MOST, WARM_UP_SECONDS = 3, 10, 20.0
SETTLED_WITHIN = 0.05


def system_clock() -> int:
    return time.perf_counter_ns()


class StepSeen(Protocol):
    """What a step of the engine tells: its phase and the tokens it gave each sequence, if any."""

    @property
    def phase(self) -> Phase: ...

    @property
    def tokens(self) -> Mapping[int, tuple[int, ...]]: ...

    @property
    def drafts(self) -> Mapping[int, Verified]: ...


class TimedEngine(Protocol):
    """The part of `engine.run.engine.Engine` that a run needs."""

    @property
    def has_work(self) -> bool: ...

    @property
    def held_tokens(self) -> int: ...

    @property
    def most_held_tokens(self) -> int: ...

    def add_request(self, prompt_ids: Sequence[int], params: SamplingParams) -> int: ...

    def step(self, on_part: OnPart = ...) -> StepSeen: ...

    def reset(self) -> None: ...


class Answered(Protocol):
    """A timed run as its outputs are checked: every request's prompt and what it was given."""

    @property
    def prompts(self) -> tuple[tuple[int, ...], ...]: ...

    @property
    def outputs(self) -> tuple[tuple[int, ...], ...]: ...


class OutputFault(Exception):
    """A run gave other tokens than it was asked for; the message says which."""


OnStep = Callable[[Phase, int], None]
"""Called between steps, off the step's own clock, with the phase and the step's number in it."""


@dataclass(frozen=True)
class Episode:
    """One run: what the clock said, and every request's prompt and output tokens."""

    sample: RunSample
    prompts: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class WarmUp:
    """How many runs were dropped, whether the last two agreed, and the last one's seconds."""

    runs: int
    settled: bool
    seconds: float


@contextmanager
def collector_off() -> Iterator[None]:
    """Collect young garbage now, and none while a run is timed: that would take tens of ms.

    May be nested: an episode within a timed unit changes nothing.
    """
    if not gc.isenabled():
        yield
        return
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def run_episode(
    engine: TimedEngine,
    prompts: Prompts,
    output_tokens: int,
    clock: Clock = system_clock,
    on_step: OnStep | None = None,
    draft_length: int = 0,
    sampling: SamplingConfig = GREEDY,
) -> Episode:
    """Start every prompt together, run to the last token, and time each step.

    The output length is fixed (end-of-text is ignored), tokens are drawn as `sampling` says. The
    run starts when the first
    request is handed in and ends with the last step. `other_seconds` is what lies between steps.
    Where the build drafts, `draft_length` tokens at the most, what became of it is told as well.

    Raises:
        OutputFault: a request did not get exactly `output_tokens` tokens.
        MetricError: the parts do not add up.
    """
    params = [asked_for(sampling, prompt, output_tokens, to_the_end=True) for prompt in prompts]
    engine.reset()
    outputs: dict[int, list[int]] = {}
    first_token: dict[int, int] = {}
    last_token: dict[int, int] = {}
    spent: dict[Phase, list[int]] = {"prefill": [], "decode": []}
    with collector_off():
        start = clock()
        for prompt, wanted in zip(prompts, params, strict=True):
            outputs[engine.add_request(prompt, wanted)] = []
        drafts = DraftWatch(clock, DraftTally(draft_length), {one: [] for one in outputs})
        ended = start
        while engine.has_work:
            began = drafts.since = clock()
            seen = engine.step(drafts.on_part)
            ended = clock()
            spent[seen.phase].append(ended - began)
            for request, tokens in seen.tokens.items():
                first_token.setdefault(request, ended)
                last_token[request] = ended
                outputs[request].extend(tokens)
            if draft_length and seen.phase == "decode":
                drafts.saw(seen)
            if on_step is not None:
                on_step(seen.phase, len(spent[seen.phase]))
    given = tuple(tuple(tokens) for tokens in outputs.values())
    check_counts(given, [output_tokens] * len(given))
    wall = ended - start
    prefill, decode = sum(spent["prefill"]), sum(spent["decode"])
    sample = RunSample(
        batch=len(prompts),
        prompt_tokens=len(prompts[0]),
        output_tokens=output_tokens,
        ttft=tuple((first_token[request] - start) / 1e9 for request in outputs),
        prefill_seconds=prefill / 1e9,
        step_seconds=tuple(step / 1e9 for step in spent["decode"]),
        other_seconds=(wall - prefill - decode) / 1e9,
        wall_seconds=wall / 1e9,
        output_digest=output_digest(given),
        peak_live_tokens=engine.most_held_tokens,
    )
    if draft_length:
        sample = msgspec.structs.replace(
            sample,
            given=tuple(tuple(map(float, counts)) for counts in drafts.given.values()),
            finished=tuple((last_token[request] - start) / 1e9 for request in outputs),
            draft=drafts.sample(),
        )
    check_sample(sample)
    return Episode(sample, tuple(tuple(prompt) for prompt in prompts), given)


def check_counts(outputs: Sequence[Sequence[int]], expected: Sequence[int]) -> None:
    """Raises OutputFault where a request gave another number of tokens than it was asked for."""
    for request, (tokens, asked) in enumerate(zip(outputs, expected, strict=True)):
        if len(tokens) != asked:
            raise OutputFault(f"request {request} gave {len(tokens)} tokens instead of {asked}")


def output_digest(outputs: Sequence[Sequence[int]]) -> str:
    """SHA-256 over every request's tokens, in order."""
    text = ";".join(",".join(map(str, tokens)) for tokens in outputs)
    return hashlib.sha256(text.encode()).hexdigest()


def episodes_for(seconds: float) -> int:
    """Episodes a timed unit needs to last 50 ms, where one takes `seconds`."""
    if seconds >= TIMED_UNIT_SECONDS:
        return 1
    return min(math.ceil(TIMED_UNIT_SECONDS / max(seconds, 1e-6) - 1e-9), 1000)


def merge(episodes: Sequence[Episode]) -> RunSample:
    """The mean episode of a timed unit: every duration averaged place by place, so sums hold.

    All episodes are of one build, hence of one shape; where drafts make some need fewer steps, what
    an episode has no step for counts as nothing. The digest covers all their outputs.
    """
    if len(episodes) == 1:
        return episodes[0].sample
    runs = [episode.sample for episode in episodes]
    count = len(runs)

    def mean(values: Iterator[float]) -> float:
        return sum(values) / count

    def columns(rows: Iterable[Sequence[float]]) -> tuple[float, ...]:
        return tuple(sum(column) / count for column in zip_longest(*rows, fillvalue=0.0))

    return RunSample(
        batch=runs[0].batch,
        prompt_tokens=runs[0].prompt_tokens,
        output_tokens=runs[0].output_tokens,
        ttft=columns(run.ttft for run in runs),
        prefill_seconds=mean(run.prefill_seconds for run in runs),
        step_seconds=columns(run.step_seconds for run in runs),
        other_seconds=mean(run.other_seconds for run in runs),
        wall_seconds=mean(run.wall_seconds for run in runs),
        output_digest=output_digest([tokens for e in episodes for tokens in e.outputs]),
        peak_live_tokens=max(run.peak_live_tokens for run in runs),
        given=tuple(columns(rows) for rows in zip(*(run.given for run in runs), strict=True)),
        finished=columns(run.finished for run in runs),
        draft=merge_drafts([run.draft for run in runs if run.draft is not None]),
    )


def warm_up(run: Callable[[], float], clock: Clock = system_clock) -> WarmUp:
    """Run and drop until stable: at least 3 runs, until two in a row differ by less than 5 %.

    Gives up, unsettled, after 10 runs or 20 seconds. `run` returns its wall seconds.
    """
    start = clock()
    seconds: list[float] = []
    while True:
        seconds.append(run())
        if len(seconds) < WARM_UP_FEWEST:
            continue
        before, last = seconds[-2:]
        if abs(last - before) < SETTLED_WITHIN * min(last, before):
            return WarmUp(len(seconds), True, last)
        spent = (clock() - start) / 1e9
        if len(seconds) >= WARM_UP_MOST or spent >= WARM_UP_SECONDS:
            return WarmUp(len(seconds), False, last)
