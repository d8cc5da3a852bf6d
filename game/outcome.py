"""What a trial leaves in the player's hand, and the errors of asking for one."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.domains import Value
from engine.trial import TrialResult
from game.rules.standing import Charge
from game.rules.verdict import Verdict
from saves.documents import GuessRecord, Record
from story.facts import FactValue


class SessionInputError(ValueError):
    """Something the player asked for cannot be; the message says what would be right."""


class EngineUnavailable(RuntimeError):
    """The engine could not be had, or was lost. The message is a sentence to show.

    `code` is that of the `invalid` verdict a trial gets from it (see `game.rules.unjudged`).
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Outcome:
    """One trial, judged and entered in the ledger.

    `build` holds every position of the hall's build, the player's changes included. `result` is
    None where the engine gave none. `record` is None where nothing was recorded: the player
    stopped the trial, or the session keeps no records. `charges` are the ledger's lines, whose
    sum may exceed `debt_after - debt_before` where the debt reached 0. `warning` says, in the
    player's language, that the record could not be written: it is kept in memory meanwhile.
    """

    stage: str
    build: dict[str, Value]
    verdict: Verdict
    result: TrialResult | None
    record: Record | None
    guess: GuessRecord | None
    debt_before: int
    debt_after: int
    charges: tuple[Charge, ...] = ()
    crowns_new: tuple[str, ...] = ()
    facts: dict[str, FactValue] = field(default_factory=dict)
    warning: str | None = None

    @property
    def aborted(self) -> bool:
        """True where the player stopped the trial."""
        return any(reason.code == "aborted" for reason in self.verdict.reasons)
