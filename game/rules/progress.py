"""Where the player stands: every number here is a fold over the records, oldest first.

A record *counts* when its trial could be judged (pass or fail) under a sealed guess. Only such
records change the debt, win crowns and open halls. `inconclusive` and `invalid` trials cost and
bring nothing. Practice (a trial without a guess) is kept and may hold a hall's best figure, but
brings neither crowns, debt nor unlocks. A hall that asks no guess needs none to count.

Each sealed guess is charged once: carried unchanged into further trials of its hall it costs
nothing more, and a hall repays a close guess one time. So no debt is worked off by repetition.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from game.rules.pareto import AXES, Point, front, trades
from game.rules.standing import (
    Best,
    Charge,
    Entry,
    HallStanding,
    HallState,
    Rank,
    Standing,
)
from game.rules.verdict import FALLEN, FLOODED
from saves.documents import GuessRecord, Record
from story.schema import Stage

WRONG_CHOICE = 5
"""A wrong choice: the Wall's largest single charge."""
RIGHT_CHOICE = -2
CLOSE_DIAL = -2
DIAL_PER_DOUBLING = 1
"""Beyond the dial's `close` factor, each doubling of the error (begun counts as whole)."""
DIAL_LEAST, DIAL_MOST = 1, 6
"""Least and most that one guess off the dial's mark can cost."""
FAILED_TRIAL = 2
NEW_CROWN = -1
"""For each crown won for the first time."""

PARETO = "pareto"
CROWN_ORDER = ("time", "memory", "quality", PARETO)
LAST_HALL = "questions"
"""The hall whose passing completes the fourth layer."""
MIDDLE_DEBT, LATE_DEBT = 10, 4
"""Most debt at which the middle and the late stage of the layer are held."""
MIDDLE_CROWNS, LATE_CROWNS = 1 / 4, 2 / 3
"""Share of the open halls' crowns that those stages ask for."""
SERVE_AXES = ("throughput", "memory_bytes", "kl")
"""What builds of a served load are compared on; elsewhere `pareto.AXES`."""
SCARS: Mapping[str, str] = {"flood": FLOODED, "cliff": FALLEN}
"""The scar a hall demands -> the reason that a failed trial must have to leave it."""


def standing(
    records: Iterable[Record], stages: Sequence[Stage], profile: str | None = None
) -> Standing:
    """The fold of `records` (oldest first); of one profile's, by its key, where it is given."""
    return ledger(records, stages, profile)[1]


def ledger(
    records: Iterable[Record], stages: Sequence[Stage], profile: str | None = None
) -> tuple[tuple[Entry, ...], Standing]:
    """What each record charged and repaid, and where that leaves the player.

    Debt never falls below 0: what cannot be repaid is not kept as credit.
    """
    by_id = {stage.id: stage for stage in stages}
    halls = {stage.id: _Hall(stage) for stage in stages}
    entries: list[Entry] = []
    debt = 0
    for record in records:
        if profile is not None and record.profile != profile:
            continue
        stage = by_id.get(record.stage)
        if stage is None:
            # A hall this game does not have (a challenge's, a later version's): listed, inert.
            entries.append(_entry(record, (), (), debt, debt, False))
            continue
        charges, crowns, counted = halls[stage.id].take(record)
        after = max(0, debt + sum(charge.amount for charge in charges))
        halls[stage.id].debt += after - debt
        entries.append(_entry(record, charges, crowns, debt, after, counted))
        debt = after
    return tuple(entries), _standing(debt, halls, stages)


def counts(record: Record, stage: Stage) -> bool:
    """True where the record was judged, under a seal if its hall asks for a guess."""
    sealed = record.guess is not None or stage.guess is None
    return sealed and _word(record) in ("pass", "fail")


def flooded(record: Record) -> bool:
    """True where the record's trial broke its memory budget."""
    return failed_as(FLOODED, record)


def fell(record: Record) -> bool:
    """True where the model of the record's trial lost its meaning."""
    return failed_as(FALLEN, record)


def failed_as(reason: str, record: Record) -> bool:
    """Whether the record's trial failed, and for this reason; a record may hold anything."""
    reasons = record.verdict.get("reasons")
    if _word(record) != "fail" or not isinstance(reasons, list | tuple):
        return False
    return any(isinstance(one, dict) and one.get("code") == reason for one in reasons)


def guess_charge(guess: GuessRecord | None, stage: Stage) -> Charge | None:
    """What one scored guess costs (positive) or repays; None where it was never scored."""
    if guess is None or guess.close is None or guess.factor is None:
        return None
    if isinstance(guess.value, str):
        if guess.close:
            return Charge("guess_right", RIGHT_CHOICE)
        return Charge("guess_wrong", WRONG_CHOICE)
    if guess.close:
        return Charge("guess_close", CLOSE_DIAL)
    return Charge("guess_far", dial_cost(guess.factor, stage.guess.close if stage.guess else 1.5))


def dial_cost(factor: float, close: float) -> int:
    """ceil(log2(factor / close)) doublings beyond close, within [DIAL_LEAST, DIAL_MOST]."""
    if not math.isfinite(factor):
        return DIAL_MOST
    doublings = math.ceil(math.log2(max(factor, 1.0) / close))
    return min(DIAL_MOST, max(DIAL_LEAST, DIAL_PER_DOUBLING * doublings))


@dataclass
class _Hall:
    """One hall's running account while the records go by."""

    stage: Stage
    debt: int = 0
    attempts: int = 0
    met: bool = False
    scar: str | None = None
    floods: int = 0
    falls: int = 0
    repaid: bool = False
    charged: set[float | str] = field(default_factory=set)
    crowns: set[str] = field(default_factory=set)
    points: dict[str, Point] = field(default_factory=dict)
    guess: GuessRecord | None = None
    last: Record | None = None
    best: Best | None = None

    @property
    def passed(self) -> bool:
        """Its goals were met and, where it demands one, its scar was left; in either order."""
        return self.met and (self.stage.scar is None or self.scar is not None)

    @property
    def axes(self) -> Sequence[str]:
        return SERVE_AXES if self.stage.trial == "serve" else AXES

    def take(self, record: Record) -> tuple[tuple[Charge, ...], tuple[str, ...], bool]:
        """Charges, newly won crowns, and whether the record counts."""
        self.last = record
        word = _word(record)
        if word == "pass":
            self._keep_best(record)
        if not counts(record, self.stage):
            return (), (), False
        self.attempts += 1
        charges: list[Charge] = []
        if (charge := self._charge_guess(record.guess)) is not None:
            charges.append(charge)
        if word == "fail":
            self.floods += flooded(record)
            self.falls += fell(record)
            demanded = SCARS.get(self.stage.scar or "")
            if demanded is not None and failed_as(demanded, record):
                self.scar = self.scar or record.digest
            charges.append(Charge("trial_failed", FAILED_TRIAL))
            return tuple(charges), (), True
        self.met = True
        new = self._win_crowns(record)
        if new:
            charges.append(Charge("crowns", NEW_CROWN * len(new)))
        return tuple(charges), new, True

    def _charge_guess(self, guess: GuessRecord | None) -> Charge | None:
        charge = guess_charge(guess, self.stage)
        if guess is None or charge is None:
            return None
        self.guess = guess
        if guess.value in self.charged or (charge.amount < 0 and self.repaid):
            return None
        self.charged.add(guess.value)
        self.repaid = self.repaid or charge.amount < 0
        return charge

    def _win_crowns(self, record: Record) -> tuple[str, ...]:
        won = {name for name in record.verdict.get("crowns", ()) if name in CROWN_ORDER}
        point = _point(record, self.axes)
        if point is not None:
            # The latest record of a build speaks for it: a lucky run does not stand for ever.
            self.points[point.build] = point
            on_front = front(tuple(self.points.values()), self.axes)
            # One build alone, or two that measure alike, have chosen nothing.
            chosen = (trades(point.figures, p.figures, self.axes) for p in on_front)
            if point in on_front and any(chosen):
                won.add(PARETO)
        new = won - self.crowns
        self.crowns |= new
        return tuple(name for name in CROWN_ORDER if name in new)

    def _keep_best(self, record: Record) -> None:
        """Best by the first goal's metric; where a hall has no goals, the latest pass."""
        figures = tuple(
            (goal.metric, value)
            for goal in self.stage.goals
            if (value := _metrics(record).get(goal.metric)) is not None
        )
        if self.best is not None and self.stage.goals:
            if not figures or not self.best.figures:
                return
            new, old, op = figures[0][1], self.best.figures[0][1], self.stage.goals[0].op
            if not (new > old if op == ">=" else new < old):
                return
        self.best = Best(record.digest, record.build, figures, practice=record.guess is None)


def _standing(debt: int, halls: Mapping[str, _Hall], stages: Sequence[Stage]) -> Standing:
    passed = frozenset(name for name, hall in halls.items() if hall.passed)
    told: dict[str, HallStanding] = {}
    for stage in stages:
        hall = halls[stage.id]
        state, needs = _state(stage, passed)
        told[stage.id] = HallStanding(
            stage=stage.id,
            state=state,
            needs=needs,
            crowns=tuple(name for name in CROWN_ORDER if name in hall.crowns),
            attempts=hall.attempts,
            debt=hall.debt,
            best=hall.best,
            last=hall.last.digest if hall.last else None,
            last_word=_word(hall.last) if hall.last else None,
            guess=hall.guess,
            met=hall.met,
            scar=hall.scar,
            floods=hall.floods,
            falls=hall.falls,
        )
    crowns = sum(len(hall.crowns) for hall in halls.values())
    return Standing(
        debt=debt, halls=told, passed=passed, crowns=crowns, rank=_rank(debt, halls, passed)
    )


def _state(stage: Stage, passed: frozenset[str]) -> tuple[HallState, str | None]:
    """A hall opens when it is built and the hall before it was passed, its scar included; what is
    passed stays so."""
    if not stage.open:
        return "sealed", None
    if stage.id in passed:
        return "passed", None
    if stage.opens_after is not None and stage.opens_after not in passed:
        return "sealed", stage.opens_after
    return "open", None


def _rank(debt: int, halls: Mapping[str, _Hall], passed: frozenset[str]) -> Rank:
    """The stage within the fourth layer, from debt and the share of crowns that can be won."""
    if LAST_HALL in passed and debt == 0:
        return "complete"
    to_win = sum(len(hall.stage.crowns) + 1 for hall in halls.values() if hall.stage.crowns)
    share = sum(len(hall.crowns) for hall in halls.values()) / to_win if to_win else 0.0
    if share >= LATE_CROWNS and debt <= LATE_DEBT:
        return "late"
    if share >= MIDDLE_CROWNS and debt <= MIDDLE_DEBT:
        return "middle"
    return "early"


def _entry(
    record: Record,
    charges: tuple[Charge, ...],
    crowns: tuple[str, ...],
    before: int,
    after: int,
    counted: bool,
) -> Entry:
    return Entry(
        digest=record.digest,
        stage=record.stage,
        recorded_at=record.recorded_at,
        word=_word(record),
        counted=counted,
        charges=charges,
        crowns_new=crowns,
        debt_before=before,
        debt_after=after,
    )


def _point(record: Record, axes: Sequence[str]) -> Point | None:
    figures = _metrics(record)
    if any(axis not in figures for axis in axes):
        return None
    return Point(json.dumps(record.build, sort_keys=True), record.digest, figures)


def _word(record: Record) -> str:
    return str(record.verdict.get("word", "invalid"))


def _metrics(record: Record) -> dict[str, float]:
    """The record's finite figures; a record is plain JSON and may hold anything."""
    found: Any = record.verdict.get("metrics")
    if not isinstance(found, dict):
        return {}
    return {
        str(name): float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
