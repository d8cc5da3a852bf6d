"""What a trial has measured so far, as the set pieces draw it: a fold over the engine's events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

from engine.messages import Account, AnyEvent, Pages, Pressed, Progress, Step, TrialDone
from engine.quantised import Histogram, LayerError, Quantised
from engine.trial import Flood, Ledger, LoadSample, RunSample, TrialResult

BuildName = Literal["reference", "candidate"]
BUILDS: tuple[BuildName, ...] = ("reference", "candidate")
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
class Pressing:
    """A build's weights on the press: `done` matrices of `total`, `error` the one just done.

    `errors` are those told so far, in order; `histogram` is the newest. Of a finished trial
    `error` is None and the histogram that of the matrix that came out worst.
    """

    done: int
    total: int
    error: LayerError | None
    errors: tuple[LayerError, ...]
    histogram: Histogram | None


@dataclass(frozen=True)
class Measured:
    """`now` is the build on the clock, `phase` what it does; None between timed parts.

    By build: `accounts` are the latest memory accounts and `crests` those in which most was held;
    `pages` the latest page maps, `fresh` the blocks copied on write since the map before. `flood`
    is there once the budget broke; `presses` are how weights were quantised.
    """

    reference: Rates = Rates()
    candidate: Rates = Rates()
    now: BuildName | None = None
    phase: Literal["prefill", "decode"] | None = None
    batch: int = 0
    position: int = 0
    progress: Progress | None = None
    accounts: Mapping[BuildName, Ledger] = field(default_factory=dict)
    crests: Mapping[BuildName, Ledger] = field(default_factory=dict)
    pages: Mapping[BuildName, Pages] = field(default_factory=dict)
    fresh: Mapping[BuildName, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    flood: Flood | None = None
    presses: Mapping[BuildName, Pressing] = field(default_factory=dict)

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
        case Account():
            return _hear_account(known, event)
        case Pages():
            return _hear_pages(known, event)
        case Pressed():
            return _hear_pressed(known, event)
        case TrialDone():
            return settled(event.result)
        case _:
            return known


def _hear_account(known: Measured, event: Account) -> Measured:
    crest = known.crests.get(event.build)
    if crest is None or event.ledger.held_bytes >= crest.held_bytes:
        crest = event.ledger
    return replace(
        known,
        accounts={**known.accounts, event.build: event.ledger},
        crests={**known.crests, event.build: crest},
        flood=event.flood or known.flood,
    )


def _hear_pages(known: Measured, event: Pages) -> Measured:
    before = known.pages.get(event.build)
    copies = before.pages.copies if before is not None else 0
    # A fresh engine counts from nothing: then everything it copied is new.
    new = event.pages.copies - (copies if copies <= event.pages.copies else 0)
    copied = event.pages.copied
    return replace(
        known,
        pages={**known.pages, event.build: event},
        fresh={**known.fresh, event.build: copied[max(len(copied) - new, 0) :]},
    )


def _hear_pressed(known: Measured, event: Pressed) -> Measured:
    """A build that begins again (another method's trial, say) is pressed from nothing."""
    before = known.presses.get(event.build)
    if before is not None and event.done <= before.done:
        before = None
    pressing = Pressing(
        done=event.done,
        total=event.total,
        error=event.error,
        errors=(*(before.errors if before is not None else ()), event.error),
        histogram=event.histogram or (before.histogram if before is not None else None),
    )
    return replace(known, presses={**known.presses, event.build: pressing})


def _pressed(quantised: Quantised | None) -> dict[BuildName, Pressing]:
    if quantised is None:
        return {}
    errors = quantised.errors
    return {"candidate": Pressing(len(errors), len(errors), None, errors, quantised.histogram)}


def settled(result: TrialResult) -> Measured:
    """A finished trial: the medians of its runs (a timeline knows one build, a paired trial both),
    the candidate's account when most was held, how its weights were pressed, and the flood where
    the budget broke."""
    references = [pair.reference for pair in result.pairs]
    candidates = [pair.candidate for pair in result.pairs] or list(result.singles)
    ledger = result.flood.ledger if result.flood is not None else result.ledger
    accounts: dict[BuildName, Ledger] = {} if ledger is None else {"candidate": ledger}
    return Measured(
        reference=rates_of(references),
        candidate=rates_of(candidates),
        accounts=accounts,
        crests=accounts,
        flood=result.flood,
        presses=_pressed(result.quantised),
    )


def rates_of(samples: Sequence[RunSample]) -> Rates:
    if not samples:
        return Rates()
    prefill = [s.prefill_seconds / (s.batch * s.prompt_tokens) for s in samples]
    decode = [s.decode_seconds / (s.batch * max(s.output_tokens - 1, 1)) for s in samples]
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


def loads_of(result: TrialResult, build: BuildName) -> tuple[LoadSample, ...]:
    """The timed loads of one build of a served trial."""
    return tuple(
        pair.reference if build == "reference" else pair.candidate for pair in result.load_pairs
    )


def typical_load(samples: Sequence[LoadSample]) -> LoadSample | None:
    """The load whose wall time is the median: a real one, so that its lanes were really run."""
    if not samples:
        return None
    ordered = sorted(samples, key=lambda sample: sample.wall_seconds)
    return ordered[(len(ordered) - 1) // 2]
