"""The title: the Wall fills the screen, and a door stands open in it."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from game.screens.base import HallScreen
from game.screens.too_small import too_small
from game.waking import EngineState
from game.widgets.door import Door, DoorText, door_region
from game.widgets.engine_line import EngineLine
from game.widgets.runes import RuneField


class TitleScreen(HallScreen[None]):
    DEFAULT_CSS: ClassVar[str] = """
    TitleScreen { layers: base door veil; }
    TitleScreen RuneField { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r,R", "trouble", id="trouble"),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
    ]
    HELP_KEY: ClassVar[str] = "title.help"

    def __init__(self) -> None:
        super().__init__()
        self._chosen = 0
        self._debt = 0
        self._account = ""
        self._others = False

    def body(self) -> ComposeResult:
        yield RuneField(self.hall.script)
        yield Door()
        yield EngineLine()

    def entries(self) -> tuple[str, ...]:
        """Only what can be done now: nothing dead is shown."""
        if self.session.profile is None:
            roll = ("travellers",) if self._others else ()
            return ("new", *roll, "settings", "leave")
        return ("continue", "new", "travellers", "settings", "leave")

    def retell(self) -> None:
        known = self.session.profile is not None
        standing = self.session.standing()
        self._debt = standing.debt if known else 0
        rank = self.say(f"map.rank.{standing.rank}")
        self._account = self.say("title.account", debt=self._debt, rank=rank) if known else ""
        self._others = not known and bool(self.session.profiles())
        self.query_one(RuneField).show(self.hall.script, self._debt)
        self._show_door()
        self.engine_changed(self.hall.engine_state)
        self._place_door()
        super().retell()

    def _show_door(self) -> None:
        entries = self.entries()
        self._chosen = min(self._chosen, len(entries) - 1)
        text = DoorText(
            name=self.say("title.name"),
            under_name=self.hall.printable(self.say("title.under_name")),
            motto=self.say("title.motto"),
            entries=tuple((entry, self.say(f"title.{entry}")) for entry in entries),
            account=self._account,
            owing=self._debt > 0,
        )
        self.query_one(Door).show(text, self._chosen, self.hall.here_mark)

    def engine_changed(self, state: EngineState) -> None:
        self.query_one(EngineLine).tell(state, self.hall.engine_words())
        self._hold_or_drift()
        self.refresh_keys()

    def _hold_or_drift(self) -> None:
        still = self.reduced_motion or self.calm or not self.is_current
        self.query_one(RuneField).drift(not still)

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._place_door()

    def _place_door(self) -> None:
        if too_small(self.size):
            return
        wall = self.size - (0, 2)
        door = door_region(wall, len(self.entries()))
        self.query_one(RuneField).open_door(door)
        self.query_one(Door).place(door)

    def on_screen_suspend(self) -> None:
        self.query_one(RuneField).drift(False)

    def key_words(self, binding_id: str) -> str | None:
        if binding_id == "trouble" and self.hall.engine_state.phase != "failed":
            return None
        return super().key_words(binding_id)

    def action_trouble(self) -> None:
        if self.hall.engine_state.phase == "failed":
            self.hall.open_trouble()

    def action_move(self, by: int) -> None:
        self._chosen = (self._chosen + by) % len(self.entries())
        self._show_door()

    async def action_go_on(self) -> None:
        await self.action_choose(self.entries()[self._chosen])

    async def action_choose(self, entry: str) -> None:
        if entry == "leave":
            await self.hall.action_leave()
        elif entry == "continue":
            self.hall.open_map()
        elif entry == "new":
            self.hall.open_new_journey()
        elif entry == "travellers":
            self.hall.open_travellers()
        elif entry == "settings":
            self.hall.open_settings()
