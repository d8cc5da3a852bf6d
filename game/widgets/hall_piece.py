"""The set piece of a hall: what stands in the upper part of its screens, fed by measurements.

A piece is told what is known (`Frame`) and how fast it may move; it never asks the engine.
Before anything was measured it shows only what is true then: the Wall's runes, rods at rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from engine.machine import Ceilings
from engine.price import Price
from engine.quality_report import Rung
from engine.trial import TrialResult
from game.measured import BuildName, Measured
from game.roof_points import TwoPhases
from game.widgets.footholds import Foothold
from game.widgets.kept import Keeping
from game.widgets.pendulum import Pace
from game.widgets.trial_points import TrialPoint

Say = Callable[..., str]
View = Literal["first", "second"]


@dataclass(frozen=True)
class Frame:
    """All a set piece may draw from. `work` and `prices` are by build name, counted by formula.

    `shape` is (batch, prompt, output) by build name. `supposed` is what the needle of the hall's
    dial shows while it is being moved; `veiled` is true until the guess is sealed: what would
    answer the hall's question must not be drawn. `keeping` is how the build at hand keeps its
    weights; `footholds` and `rungs` are what the hall's records say of quality by width, `goals`
    its bounds by metric. `drafts` are the hall's trials that drafted; `draft_cost` is what a
    drafted token of the build at hand costs by formula, in steps of the model, None where nobody
    knows yet.
    """

    debt: int = 0
    measured: Measured = field(default_factory=Measured)
    result: TrialResult | None = None
    ceilings: Ceilings | None = None
    work: dict[str, TwoPhases] = field(default_factory=dict)
    shape: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    precision: dict[str, str] = field(default_factory=dict)
    prices: Mapping[BuildName, Price] = field(default_factory=dict)
    supposed: float | None = None
    veiled: bool = False
    keeping: Keeping | None = None
    footholds: tuple[Foothold, ...] = ()
    rungs: tuple[Rung, ...] = ()
    goals: Mapping[str, float] = field(default_factory=dict)
    drafts: tuple[TrialPoint, ...] = ()
    draft_cost: float | None = None


class HallPiece(Container):
    """A hall's piece has one view or two; where there is room both are shown."""

    DEFAULT_CSS: ClassVar[str] = """
    HallPiece { height: 1fr; width: 1fr; layout: vertical; }
    HallPiece.-beside { layout: horizontal; }
    """
    BOTH_ROWS: ClassVar[int] = 26
    BESIDE_COLUMNS: ClassVar[int] = 150

    def __init__(self, say: Say, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.say = say
        self.frame = Frame()
        self.view: View = "first"
        self.pace: Pace = "still"

    def compose(self) -> ComposeResult:
        yield from ()

    def on_mount(self) -> None:
        self.set_out()
        self.update_piece()

    def on_resize(self, event: events.Resize) -> None:
        self.set_out()
        self.update_piece()

    def show(self, frame: Frame) -> None:
        self.frame = frame
        if self.is_mounted:
            self.update_piece()

    def set_pace(self, pace: Pace) -> None:
        self.pace = pace
        if self.is_mounted:
            self.update_piece()

    @property
    def two_views(self) -> bool:
        """Whether there is a second view, and something to show in it."""
        return False

    @property
    def room_for_both(self) -> bool:
        return self.size.height >= self.BOTH_ROWS or self.size.width >= self.BESIDE_COLUMNS

    def turn_view(self) -> None:
        self.view = "second" if self.view == "first" else "first"
        self.set_out()
        self.update_piece()

    def set_out(self) -> None:
        """Show the views there is room for."""
        self.set_class(
            self.size.width >= self.BESIDE_COLUMNS and self.size.height < 2 * self.BOTH_ROWS,
            "-beside",
        )

    def share_room(self, first: Widget, second: Widget) -> None:
        """Show both views where there is room, else the one that is turned to; the second only
        where it has something to show."""
        two = self.two_views
        both = self.room_for_both and two
        first.display = both or self.view == "first" or not two
        second.display = both or (self.view == "second" and two)

    def update_piece(self) -> None:
        """Draw again from the frame, in the language of the moment."""
