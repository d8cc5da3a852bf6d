"""Where a player stands, as values: what `progress` folds the records into."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.domains import Value
from saves.documents import GuessRecord

HallState = Literal["sealed", "open", "passed"]
Rank = Literal["early", "middle", "late", "complete"]
ChargeCode = Literal[
    "guess_right", "guess_wrong", "guess_close", "guess_far", "trial_failed", "crowns"
]


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Charge(_Value, frozen=True):
    """One line of the ledger; `amount` is debt added (positive) or repaid (negative).

    `code` names interface text `charge.<code>`.
    """

    code: ChargeCode
    amount: int


class Entry(_Value, frozen=True):
    """What one record did to the ledger. `counted` is false where it could do nothing."""

    digest: str
    stage: str
    recorded_at: str
    word: str
    counted: bool
    charges: tuple[Charge, ...]
    crowns_new: tuple[str, ...]
    debt_before: int
    debt_after: int


class Best(_Value, frozen=True):
    """The best passing record of a hall: `figures` are (metric, value) in the goals' order."""

    digest: str
    build: dict[str, Value]
    figures: tuple[tuple[str, float], ...]
    practice: bool


class HallStanding(_Value, frozen=True):
    """`needs` is the hall to pass first, None where the hall is open or not built yet.

    `crowns` are in the order time, memory, quality, pareto; `attempts` counts judged trials under
    a seal; `debt` is what this hall added to the ledger (negative where it repaid); `last` is the
    digest of its latest record and `last_word` that record's verdict; `guess` the guess last
    scored here. `met` is true once its goals were met under a seal, which passes a hall unless it
    demands a scar; `scar` is the digest of the first record that failed as the hall demands.
    `floods` counts the records that broke their memory budget, `falls` those whose model lost its
    meaning.
    """

    stage: str
    state: HallState
    needs: str | None
    crowns: tuple[str, ...]
    attempts: int
    debt: int
    best: Best | None
    last: str | None
    last_word: str | None
    guess: GuessRecord | None
    met: bool = False
    scar: str | None = None
    floods: int = 0
    falls: int = 0


class Standing(_Value, frozen=True):
    """`halls` is in the order of the stages; `rank` the stage within the fourth layer."""

    debt: int
    halls: dict[str, HallStanding]
    passed: frozenset[str]
    crowns: int
    rank: Rank
