"""The shape of a stage file and of a scene file. Values only: loading is in `loader`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from engine.domains import Value
from engine.trial import Bound, TrialKind

Language = Literal["zh", "en"]
LANGUAGES: tuple[Language, ...] = ("zh", "en")
Speaker = Literal["narrator", "elder", "wall", "player"]
Op = Literal[">=", "<=", ">", "<", "==", "!="]


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Guess(_Value, frozen=True):
    """A number on a logarithmic dial, or one of lettered choices; `metric` is its measured truth.

    For a dial, a guess within a factor of `close` is close. Choice texts stand in the scene files.
    """

    kind: Literal["dial", "choice"]
    metric: str
    low: float = 1.0
    high: float = 1.0
    close: float = 1.5
    choices: tuple[str, ...] = ()


class Crown(_Value, frozen=True):
    name: Literal["time", "memory", "quality"]
    metric: str
    op: Literal[">=", "<="]
    bound: float


class Proof(_Value, frozen=True):
    """What `lint` saw when it last swept this stage: where, when, who lost and who won."""

    date: str
    device: str
    losers: tuple[dict[str, Value], ...]
    winners: tuple[dict[str, Value], ...]


class Stage(_Value, frozen=True):
    """`build` is the default build (fixed workload included); `knobs` are what the forge offers.

    `opens_after` names the hall that must be passed first. A closed hall has only id, order, open
    and opens_after. `hint_build` is the build the third hint gives away. `scar` names a failure
    that the hall demands once beside its goals: `flood`, a trial that breaks the memory budget, or
    `cliff`, one whose model has lost its meaning. `probes` and `ladder` as in `TrialSpec`. `lesson`
    names what a decode step of the reference must wait for if this hall is to show what it teaches.
    Knobs in `shared` stand in the reference wherever the player has put them.
    """

    id: str
    order: int
    open: bool
    opens_after: str | None = None
    trial: TrialKind = "paired"
    guess: Guess | None = None
    knobs: tuple[str, ...] = ()
    build: dict[str, Value] = {}
    reference: dict[str, Value] = {}
    shared: tuple[str, ...] = ()
    goals: tuple[Bound, ...] = ()
    crowns: tuple[Crown, ...] = ()
    hint_build: dict[str, Value] = {}
    proof: Proof | None = None
    scar: Literal["flood", "cliff"] | None = None
    probes: bool = False
    ladder: tuple[int, ...] = ()
    lesson: Literal["bytes"] | None = None

    def reference_to(self, build: Mapping[str, Value]) -> dict[str, Value]:
        """What the build is compared with."""
        own = {**self.build, **build}
        return self.reference | {name: own[name] for name in self.shared if name in own}


class Condition(_Value, frozen=True):
    """`fact` is a name of `story.facts.FACTS`; a line is told where every condition holds."""

    fact: str
    op: Op
    value: float | str | bool


class Reply(_Value, frozen=True):
    """One of a line's numbered choices and what is said to it."""

    id: str
    text: str
    answer: str
    who: Speaker = "elder"


class Line(_Value, frozen=True):
    """`{name}` in a text is filled from the facts of this play. `id` is stable across languages."""

    id: str
    who: Speaker
    text: str
    mood: str = ""
    when: tuple[Condition, ...] = ()
    choices: tuple[Reply, ...] = ()


SceneName = Literal[
    "arrival", "forge", "passed", "failed", "undecided", "insight", "descent", "scar"
]
"""`descent` and `scar` belong to a hall that demands a scar: the first is told when its goals are
met and the scar is still to come, the second when a trial has just left it."""


class StageText(_Value, frozen=True):
    """One stage in one language."""

    stage: str
    name: str
    place: str
    closed: str = ""
    question: str = ""
    choices: dict[str, str] = {}
    scenes: dict[SceneName, tuple[Line, ...]] = {}
    hints: tuple[str, ...] = ()
    formula: str = ""
    published: str = ""
    correction: str = ""
