"""The alarm for results that cannot be: more bits or finer groups that come out worse.

A finer grid can say whatever a coarser one can. Where its result is worse all the same, something
is broken, or the method was misled (by too little calibration text, say): either must be told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.weight_format import ROW

RELATIVE, ABSOLUTE = 0.05, 0.002
"""How far above the coarser one's KL divergence, as a share and in nats, is still the same: which
codes a method lands on moves it that much."""


@dataclass(frozen=True)
class Row:
    """One build's quality: KL in nats a token. `kind` is whatever else must be equal for two rows
    to be compared: method, symmetry, calibration, model, text."""

    kind: str
    bits: int
    group: int
    kl: float


@dataclass(frozen=True)
class Breach:
    """`finer` has no fewer bits and no wider groups than `coarser`, and yet a higher KL."""

    finer: Row
    coarser: Row


def monotone(rows: Sequence[Row]) -> tuple[Breach, ...]:
    """For every row that is worse than a coarser one of its kind, the best of those it loses to.

    In the order of `rows`; empty where all is as it should be. A KL that is no number loses to any.
    """
    found: list[Breach] = []
    for finer in rows:
        better = [
            coarser for coarser in rows if is_finer(finer, coarser) and _worse(finer, coarser)
        ]
        if better:
            found.append(Breach(finer, min(better, key=lambda row: row.kl)))
    return tuple(found)


def is_finer(one: Row, other: Row) -> bool:
    """Whether `one` has no fewer bits and no wider groups than `other`, and is another grid."""
    if one.kind != other.kind or (one.bits, one.group) == (other.bits, other.group):
        return False
    return one.bits >= other.bits and _width(one) <= _width(other)


def _width(row: Row) -> float:
    return float("inf") if row.group == ROW else row.group


def _worse(finer: Row, coarser: Row) -> bool:
    if math.isnan(coarser.kl):
        return False
    return not finer.kl <= coarser.kl * (1 + RELATIVE) + ABSOLUTE
