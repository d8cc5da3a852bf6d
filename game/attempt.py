"""One visit to a hall, as a value that changes only by legal moves. No toolkit, no clock.

    arrival -> guess -> counsel -> forge -> trial -> verdict -> aftermath -> insight -> left
                                                                       |
                                                                       +-> descent -> forge

A step is never skipped; the ways back are: an aborted trial to the forge, and from a verdict or
what follows it to the forge for another trial. One may leave from anywhere but a running trial.

A hall that demands a scar has a descent: its goals are met, and the player is sent down to break
what held. Its insight opens when both are done, in whichever order and in whatever visit.

The guess keeps its meaning by one rule: it is scored once, in the first trial that is judged
while the player did not know the truth. Until then it stays sealed as it was; after that, trials
of the same visit carry it unscored, and so does every guess of a later visit, since the Wall has
shown the answer. Debt can therefore not be farmed away by repeating what is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from game.rules.progress import SCARS
from story.schema import SceneName, Stage

if TYPE_CHECKING:
    from engine.domains import Value
    from game.session import Outcome
    from saves.documents import Record

Room = Literal[
    "arrival",
    "guess",
    "counsel",
    "forge",
    "trial",
    "verdict",
    "aftermath",
    "descent",
    "insight",
    "left",
]

_MOVES: Mapping[Room, frozenset[Room]] = {
    "arrival": frozenset({"guess", "left"}),
    "guess": frozenset({"counsel", "left"}),
    "counsel": frozenset({"forge", "left"}),
    "forge": frozenset({"trial", "left"}),
    "trial": frozenset({"forge", "verdict"}),
    "verdict": frozenset({"aftermath", "forge", "left"}),
    "aftermath": frozenset({"insight", "descent", "forge", "left"}),
    "descent": frozenset({"forge", "left"}),
    "insight": frozenset({"forge", "left"}),
    "left": frozenset(),
}
HINTS = 3
_AFTERMATH: Mapping[str, SceneName] = {"pass": "passed", "fail": "failed"}


class FlowError(RuntimeError):
    """A step out of order: a fault of the program, never of the player."""


@dataclass(frozen=True)
class Told:
    """A line that was told, to be told again in any language. `reply` is the answer chosen."""

    scene: SceneName
    line: str
    facts: Mapping[str, str | float | bool]
    reply: str | None = None


@dataclass
class Attempt:
    """Where the player stands in a hall. Change it only through its methods.

    `met` and `scarred` say whether the hall's goals were met and its scar left, by what is on
    record before this visit and by every trial judged in it.
    """

    stage: Stage
    truth_known: bool = False
    met: bool = False
    scarred: bool = False
    room: Room = "arrival"
    guess: float | str | None = None
    scored: bool = True
    build: dict[str, Value] = field(default_factory=dict)
    hints_taken: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    told: list[Told | Outcome] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.build = dict(self.stage.build)
        self.scored = not self.truth_known

    @property
    def outcome(self) -> Outcome | None:
        """The last judged trial of this visit."""
        return self.outcomes[-1] if self.outcomes else None

    @property
    def passed(self) -> bool:
        return self.outcome is not None and self.outcome.verdict.word == "pass"

    @property
    def scarring(self) -> bool:
        """The last trial failed as the hall demands."""
        demanded = SCARS.get(self.stage.scar or "")
        if self.outcome is None or demanded is None or self.outcome.verdict.word != "fail":
            return False
        return self.outcome.verdict.failed_as(demanded)

    @property
    def descending(self) -> bool:
        """The goals are met and the scar is still to come: what is asked now is to break it."""
        return self.stage.scar is not None and self.met and not self.scarred

    @property
    def complete(self) -> bool:
        """The last trial, and what stands on record, open the insight."""
        if self.stage.scar is None:
            return self.passed
        return self.met and self.scarred and (self.passed or self.scarring)

    @property
    def aftermath_scene(self) -> SceneName:
        assert self.outcome is not None
        if self.scarring:
            return "scar"
        return _AFTERMATH.get(self.outcome.verdict.word, "undecided")

    def move(self, room: Room) -> None:
        """Raises FlowError for a step out of order."""
        if room not in _MOVES[self.room]:
            raise FlowError(f"from {self.room} one cannot go to {room}")
        if room == "counsel" and self.guess is None:
            raise FlowError("the guess must be sealed before the forge")
        if room == "descent" and not (self.passed and self.descending):
            raise FlowError("the descent follows a pass in a hall whose scar is still to come")
        if room == "insight" and not self.complete:
            scar = " and its scar is left" if self.stage.scar is not None else ""
            raise FlowError(f"the insight opens once the trial is passed{scar}")
        self.room = room

    def seal(self, guess: float | str) -> None:
        """The bet is on the table; it cannot be taken back in this visit."""
        if self.room != "guess":
            raise FlowError(f"a guess is sealed at the guess, not at the {self.room}")
        if self.guess is not None:
            raise FlowError("the guess is sealed already")
        self.guess = guess
        self.move("counsel")

    def turn(self, knob: str, value: Value) -> None:
        if self.room != "forge":
            raise FlowError(f"knobs are turned in the forge, not at the {self.room}")
        if knob not in self.stage.knobs:
            raise FlowError(f"this hall does not offer {knob}")
        self.build[knob] = value

    def reset(self) -> None:
        if self.room != "forge":
            raise FlowError(f"knobs are turned in the forge, not at the {self.room}")
        self.build = dict(self.stage.build)

    def take_hint(self) -> int:
        """The number of hints taken once this one is; it stands in every record from now on."""
        self.hints_taken = min(self.hints_taken + 1, HINTS)
        return self.hints_taken

    def judged(self, outcome: Outcome) -> None:
        """The trial came back. An invalid one leaves the guess as it was: still to be scored."""
        if self.room != "trial":
            raise FlowError(f"a verdict ends a trial, not the {self.room}")
        self.outcomes.append(outcome)
        self.told.append(outcome)
        if outcome.guess is not None and outcome.guess.truth is not None:
            self.scored = False
        self.met = self.met or self.passed
        self.scarred = self.scarred or self.scarring
        self.move("verdict")

    def tell(self, told: Told) -> None:
        self.told.append(told)


def truth_was_shown(stage_id: str, records: Iterable[Record]) -> bool:
    """Whether an earlier trial of this hall has already answered its question."""
    return any(
        record.stage == stage_id and record.guess is not None and record.guess.truth is not None
        for record in records
    )


def hints_on_record(stage_id: str, records: Iterable[Record]) -> int:
    """Hints taken in this hall so far: what was read stays read."""
    return max((record.hints_taken for record in records if record.stage == stage_id), default=0)
