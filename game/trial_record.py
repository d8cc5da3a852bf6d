"""A judged trial as the record that will be sealed, and a record's verdict as it was judged."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec

from engine.domains import Value
from engine.trial import TrialResult
from game.rules.guess import score
from game.rules.judge import truth
from game.rules.verdict import Verdict
from saves.documents import GuessRecord, Record
from story.schema import Stage

RECORD_VERSION = 1


def record_of(
    stage: Stage,
    positions: dict[str, Value],
    verdict: Verdict,
    result: TrialResult | None,
    guess: GuessRecord | None,
    hints_taken: int,
) -> Record:
    """The record, not sealed yet; its profile is filled in by who keeps it.

    A number that is not finite becomes null: JSON holds none.
    """
    return Record(
        digest="",
        version=RECORD_VERSION,
        profile="",
        stage=stage.id,
        recorded_at=datetime.now(UTC).isoformat(timespec="microseconds"),
        build=positions,
        guess=guess,
        verdict=_plain(verdict),
        result=_plain(result) if result is not None else None,
        hints_taken=hints_taken,
    )


def verdict_of(record: Record) -> Verdict | None:
    """The verdict a record holds, open ends of its intervals restored; None where it is foreign."""
    plain = dict(record.verdict)
    try:
        plain["goals"] = [
            {**goal, "interval": _open_ends(goal["interval"])} for goal in plain["goals"]
        ]
        plain["metrics"] = {
            name: value for name, value in plain["metrics"].items() if value is not None
        }
        return msgspec.convert(plain, Verdict)
    except (msgspec.ValidationError, KeyError, TypeError, ValueError, AttributeError):
        return None


def result_of(record: Record) -> TrialResult | None:
    """What the engine measured, as the record keeps it; None where it has none or a foreign one."""
    try:
        return msgspec.convert(record.result, TrialResult) if record.result is not None else None
    except msgspec.ValidationError:
        return None


def scored_guess(
    stage: Stage, value: float | str | None, verdict: Verdict, scored: bool
) -> tuple[GuessRecord | None, float | str | None]:
    """The sealed guess against what was measured, and what was measured of the hall's question.

    Only a judged trial answers it: after `inconclusive` and `invalid` the guess stays sealed. A
    guess whose truth was shown before (`scored` false) keeps its factor and is charged nothing.
    """
    measured = _truth(stage, verdict)
    if value is None or stage.guess is None:
        return None, measured
    guess = score(value, measured, stage.guess)
    return (guess if scored else msgspec.structs.replace(guess, close=None)), measured


def _truth(stage: Stage, verdict: Verdict) -> float | str | None:
    if stage.guess is None or verdict.word not in ("pass", "fail"):
        return None
    try:
        return truth(verdict, stage.guess.metric)
    except ValueError:
        return None


def _open_ends(interval: Any) -> tuple[float, float]:
    low, high = interval
    return (-math.inf if low is None else low, math.inf if high is None else high)


def _plain(value: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return plain
