"""What a trial has measured so far, as the set pieces draw it: a fold over the engine's events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from engine.messages import AnyEvent, Progress, Step, TrialDone
from engine.trial import RunSample, TrialResult

BuildName = Literal["reference", "candidate"]
_ON_CLOCK: Mapping[str, BuildName] = {"A": "reference", "B": "candidate"}


@dataclass(frozen=True)
class Rates:
    """Seconds the machine spent on one token, by phase; None until that phase was timed.

    The cost is the machine's, not one request's: a decode step that serves a batch of b gives b
    tokens. `ratio` is decode's over prefill's: of a finished trial the median over its runs, as
    the judge takes it, which is near the quotient of the medians and seldom equal to it.
    """

    prefill: float | None = None
    decode: float | None = None
    over_runs: float | None = None

    @property
    def ratio(self) -> float | None:
        if self.over_runs is not None:
            return self.over_runs
        return self.decode / self.prefill if self.prefill and self.decode else None


@dataclass(frozen=True)
class Measured:
    """`now` is the build on the clock, `phase` what it does; None between timed parts."""

    reference: Rates = Rates()
    candidate: Rates = Rates()
    now: BuildName | None = None
    phase: Literal["prefill", "decode"] | None = None
    batch: int = 0
    position: int = 0
    progress: Progress | None = None

    def rates(self, build: BuildName) -> Rates:
        return self.reference if build == "reference" else self.candidate


def hear(known: Measured, event: AnyEvent) -> Measured:
    """`known` and what `event` adds to it."""
    match event:
        case Progress():
            timed = event.phase == "pairs"
            return replace(
                known,
                progress=event,
                now=_ON_CLOCK.get(event.order) if timed else None,
                phase=known.phase if timed else None,
            )
        case Step():
            spoken = event.seconds_per_token
            before = known.rates(event.build)
            rates = Rates(
                prefill=spoken.get("prefill") or before.prefill,
                decode=spoken.get("decode") or before.decode,
            )
            known = replace(
                known,
                now=event.build,
                phase=event.phase,
                batch=event.batch,
                position=event.position,
            )
            if event.build == "reference":
                return replace(known, reference=rates)
            return replace(known, candidate=rates)
        case TrialDone():
            return settled(event.result)
        case _:
            return known


def settled(result: TrialResult) -> Measured:
    """The medians of a finished trial: a timeline knows one build, a paired trial both."""
    references = [pair.reference for pair in result.pairs]
    candidates = [pair.candidate for pair in result.pairs] or list(result.singles)
    return Measured(reference=rates_of(references), candidate=rates_of(candidates))


def rates_of(samples: Sequence[RunSample]) -> Rates:
    if not samples:
        return Rates()
    prefill = [s.prefill_seconds / (s.batch * s.prompt_tokens) for s in samples]
    decode = [s.decode_seconds / (s.batch * max(len(s.step_seconds), 1)) for s in samples]
    return Rates(
        prefill=median(prefill),
        decode=median(decode),
        over_runs=median(slow / fast for slow, fast in zip(decode, prefill, strict=True)),
    )


def typical_run(samples: Sequence[RunSample]) -> RunSample | None:
    """The run whose wall time is the median: a real run, not an average of several."""
    if not samples:
        return None
    ordered = sorted(samples, key=lambda sample: sample.wall_seconds)
    return ordered[(len(ordered) - 1) // 2]
