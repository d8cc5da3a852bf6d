"""What the records of a hall say of drafts: each trial a point, who drafted and what it gained.

A record is plain JSON and may hold anything: what cannot be read is no point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

from engine.domains import KnobError, Value
from engine.knobs import KNOBS
from game.rules.draft_costs import DraftCosts, chance_of, costs_of
from saves.documents import Record
from story.schema import Stage

Mark = Literal["met", "missed", "open"]
"""The goals were met, or not; no verdict could be reached."""
NOBODY = "none"
_MARKS: Mapping[object, Mark] = {"pass": "met", "fail": "missed", "inconclusive": "open"}


@dataclass(frozen=True)
class TrialPoint:
    """One trial that drafted. `speed_up` is the reference's TPOT over the build's; the rest is None
    where the trial did not measure it.

    `acceptance_rate` is accepted over drafted tokens, `step_tokens` a mean step's (acceptance
    length), `break_even_length` a mean step over one without a draft, `draft_time_share` the part
    of decode that went into drafting.
    """

    kind: str
    length: int
    speed_up: float
    mark: Mark
    acceptance_rate: float | None = None
    step_tokens: float | None = None
    break_even_length: float | None = None
    draft_time_share: float | None = None

    @property
    def costs(self) -> DraftCosts | None:
        if self.break_even_length is None or self.draft_time_share is None:
            return None
        return costs_of(self.length, self.break_even_length, self.draft_time_share)

    @property
    def chance(self) -> float | None:
        """That a drafted token stands where all before it did; see `chance_of`."""
        tokens = self.step_tokens
        if tokens is None and self.acceptance_rate is not None:
            tokens = 1 + self.length * self.acceptance_rate
        return None if tokens is None else chance_of(tokens, self.length)


def trial_points(records: Iterable[Record], stage: Stage) -> tuple[TrialPoint, ...]:
    """The trials of `stage` in which somebody drafted, oldest first."""
    found = (_point(record, stage) for record in records if record.stage == stage.id)
    return tuple(point for point in found if point is not None)


def _point(record: Record, stage: Stage) -> TrialPoint | None:
    verdict: object = record.verdict
    metrics = verdict.get("metrics") if isinstance(verdict, dict) else None
    if not isinstance(metrics, dict):
        return None
    word = record.verdict.get("word")
    # An invalid trial says nothing of its build.
    mark = _MARKS.get(word) if isinstance(word, str) else None
    kind, length = _position(record, stage, "draft.kind"), _position(record, stage, "draft.length")
    ratio = _number(metrics.get("tpot_ratio"))
    gain = 1 / ratio if ratio else inf
    if mark is None or not isinstance(kind, str) or not isinstance(length, int):
        return None
    if kind == NOBODY or not 0 < gain < inf:
        return None
    return TrialPoint(
        kind=kind,
        length=length,
        speed_up=gain,
        mark=mark,
        acceptance_rate=_number(metrics.get("acceptance_rate"), 0, 1),
        step_tokens=_number(metrics.get("acceptance_length"), 1),
        break_even_length=_number(metrics.get("break_even_length"), 0),
        draft_time_share=_number(metrics.get("draft_time_share"), 0, 1),
    )


def _position(record: Record, stage: Stage, knob: str) -> Value | None:
    """Where the knob stood: as recorded, else as the hall has it; None where it cannot be."""
    build: object = record.build
    told = build if isinstance(build, dict) else {}
    value = {knob: KNOBS[knob].default, **stage.build, **told}[knob]
    try:
        return KNOBS[knob].domain.check(value)
    except KnobError:
        return None


def _number(value: object, low: float = -inf, high: float = inf) -> float | None:
    """A finite number within [low, high]; None of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) and low <= number <= high else None
