"""What the records of a hall say of the cliff: each trial a foothold, and the rungs beneath.

A record is plain JSON and may hold anything: what cannot be read is no foothold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Literal

from engine.quality_report import Rung
from game.rules.progress import fell
from saves.documents import Record

Hold = Literal["met", "missed", "fallen", "open"]
"""The goals were met, or not; the meaning was lost; no verdict could be reached."""


@dataclass(frozen=True)
class Foothold:
    """One trial on the cliff: bits a weight holds on the average, nats a token it lost."""

    bits: float
    kl: float
    hold: Hold


def footholds_of(records: Iterable[Record], stage: str) -> tuple[Foothold, ...]:
    """The trials of `stage` that measured both, oldest first."""
    found = (_foothold(record) for record in records if record.stage == stage)
    return tuple(foothold for foothold in found if foothold is not None)


def _foothold(record: Record) -> Foothold | None:
    verdict: object = record.verdict
    metrics = verdict.get("metrics") if isinstance(verdict, dict) else None
    if not isinstance(metrics, dict):
        return None
    bits, kl = _number(metrics.get("average_bits")), _number(metrics.get("kl"))
    if bits is None or kl is None or bits <= 0:
        return None
    hold: Hold
    match record.verdict.get("word"):
        case "pass":
            hold = "met"
        case "fail":
            hold = "fallen" if fell(record) else "missed"
        case "inconclusive":
            hold = "open"
        case _:
            # An invalid trial says nothing of its build.
            return None
    return Foothold(bits, kl, hold)


def rungs_of(records: Iterable[Record], stage: str) -> tuple[Rung, ...]:
    """The ladder as the newest trial that climbed it found it, widest first."""
    found: tuple[Rung, ...] = ()
    for record in records:
        result: object = record.result
        if record.stage != stage or not isinstance(result, dict):
            continue
        ladder = result.get("ladder")
        if not isinstance(ladder, list | tuple):
            continue
        rungs = [rung for one in ladder if (rung := _rung(one)) is not None]
        found = tuple(sorted(rungs, key=lambda rung: -rung.bits)) or found
    return found


def _rung(one: object) -> Rung | None:
    if not isinstance(one, dict):
        return None
    bits, kl, top1 = (_number(one.get(name)) for name in ("bits", "kl", "top1"))
    if bits is None or kl is None or bits < 1:
        return None
    return Rung(int(bits), kl, top1 or 0.0)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return float(value)
