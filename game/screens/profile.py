"""Who plays: the language of a first start, a traveller's name, the roll of travellers."""

from __future__ import annotations

import os
from typing import ClassVar

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Center, Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from engine.clean import clean
from game.screens.base import HallScreen
from game.screens.too_small import too_small
from game.widgets.cells import pad
from game.widgets.door import Door, DoorText, door_region
from game.widgets.runes import RuneField
from saves.documents import Profile
from saves.faults import ProfileNameError, SaveError
from saves.profile_name import LONGEST_CELLS
from story.schema import LANGUAGES, Language

NAME_CELLS = 26
_LOCALE = ("LC_ALL", "LC_MESSAGES", "LANG")
_LONGEST_INPUT = 96  # characters; the store's own limit is in cells and is told inline


class LanguageScreen(HallScreen[None]):
    """Before anything else on a first start: two lines in the door, each in its own language."""

    DEFAULT_CSS: ClassVar[str] = """
    LanguageScreen { layers: base door veil; }
    LanguageScreen RuneField { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,down,left,right,k,j", "other"),
        Binding("1", "choose('zh')"),
        Binding("2", "choose('en')"),
    ]
    LINES: ClassVar[dict[Language, str]] = {"zh": "中   文", "en": "E n g l i s h"}

    def body(self) -> ComposeResult:
        yield RuneField(self.hall.script)
        yield Door()

    def on_mount(self) -> None:
        locale = next((os.environ[name] for name in _LOCALE if os.environ.get(name)), "")
        if locale.startswith("zh"):
            self.session.update_settings(language="zh")
        super().on_mount()

    def retell(self) -> None:
        self.query_one(RuneField).show(self.hall.script, 0)
        text = DoorText(
            name=self.say("title.name"),
            under_name=self.hall.printable(self.say("title.under_name")),
            motto=self.say("title.motto"),
            entries=tuple(
                (language, self.hall.printable(self.LINES[language]) or "Chinese")
                for language in LANGUAGES
            ),
        )
        chosen = LANGUAGES.index(self.session.settings.language)
        self.query_one(Door).show(text, chosen, self.hall.here_mark)
        self._place_door()
        super().retell()

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        self._place_door()

    def _place_door(self) -> None:
        if too_small(self.size):
            return
        door = door_region(self.size - (0, 1), len(LANGUAGES))
        self.query_one(RuneField).open_door(door)
        self.query_one(Door).place(door)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """There is no ledger yet, and nothing to explain."""
        return action not in ("ledger", "help") and super().check_action(action, parameters)

    def action_other(self) -> None:
        self.hall.action_switch_language()

    def action_choose(self, language: Language) -> None:
        self.hall.set_language(language)
        self.action_go_on()

    def action_go_on(self) -> None:
        self.app.pop_screen()


class NameScreen(HallScreen[bool]):
    """A name to write on the stele: of a new traveller, or a new one for the one who plays.

    Ends with True where the name stands.
    """

    DEFAULT_CSS: ClassVar[str] = """
    NameScreen { align: center middle; }
    NameScreen #frame { width: 56; height: 1fr; align: center middle; }
    NameScreen #frame Static { width: 100%; height: auto; }
    NameScreen #heading { color: $bronze-bright; text-style: bold; }
    NameScreen #lead { color: $mist; margin: 1 0 1 0; }
    NameScreen Input { width: 34; height: 1; border: none; padding: 0 1; color: $silver;
        background: $ink-raised; }
    NameScreen Input:focus { border: none; background: $ink-raised; background-tint: $ink 0%; }
    NameScreen #fault { color: $violet; margin: 1 0 0 0; min-height: 2; }
    """
    AUTO_FOCUS: ClassVar[str | None] = "Input"
    HELP_KEY: ClassVar[str] = "profile.help"

    def __init__(self, renaming: bool = False) -> None:
        super().__init__()
        self._renaming = renaming
        self._fault = ""

    def body(self) -> ComposeResult:
        with Vertical(id="frame"):
            yield Static(id="heading", markup=False)
            yield Static(id="lead", markup=False)
            yield Input(max_length=_LONGEST_INPUT, select_on_focus=False, id="name")
            yield Static(id="fault", markup=False)

    def on_mount(self) -> None:
        if self._renaming and self.session.profile is not None:
            self.query_one(Input).value = self.session.profile.name
        super().on_mount()

    def retell(self) -> None:
        which = "rename" if self._renaming else "new"
        self.query_one("#heading", Static).update(Content(self.say(f"profile.{which}.heading")))
        self.query_one("#lead", Static).update(Content(self.say(f"profile.{which}.lead")))
        self.query_one("#fault", Static).update(Content(self._fault))
        self.query_one(Input).placeholder = self.say("profile.placeholder")
        super().retell()

    def key_words(self, binding_id: str) -> str | None:
        if binding_id in ("ledger", "help"):
            return None  # these keys are letters of the name
        if binding_id == "go_on":
            return self.say("profile.write")
        return super().key_words(binding_id)

    @on(Input.Submitted)
    def _submitted(self, message: Input.Submitted) -> None:
        message.stop()
        self.action_go_on()

    @on(Input.Changed)
    def _changed(self) -> None:
        self._tell_fault("")

    def action_go_on(self) -> None:
        name = self.query_one(Input).value
        try:
            if self._renaming:
                self.session.rename_profile(name)
            else:
                self.session.create_profile(name)
        except SaveError as error:
            self._tell_fault(self._fault_of(name, error))
        else:
            self.dismiss(True)

    def _fault_of(self, name: str, error: SaveError) -> str:
        """The refusal in the player's language; a disk's own words as they came."""
        shown = clean(name, limit=40, one_line=True).strip()
        if not isinstance(error, ProfileNameError):
            return clean(str(error))
        if cell_len(shown) == 0:
            return self.say("profile.fault.empty")
        if cell_len(shown) > LONGEST_CELLS:
            return self.say("profile.fault.wide", most=LONGEST_CELLS)
        return self.say("profile.fault.taken", name=shown)

    def _tell_fault(self, fault: str) -> None:
        self._fault = fault
        self.query_one("#fault", Static).update(Content(fault))

    def action_back(self) -> None:
        self.dismiss(False)


class TravellersScreen(HallScreen[None]):
    """Choose, rename, add or take out a traveller."""

    DEFAULT_CSS: ClassVar[str] = """
    TravellersScreen { align: center top; }
    TravellersScreen #heading { width: 100%; height: 2; padding: 0 1; color: $bronze-bright;
        text-style: bold; }
    TravellersScreen Center { height: 1fr; }
    TravellersScreen OptionList { width: 74; height: 100%; border: none; padding: 0;
        background: $ink; scrollbar-size-vertical: 1; }
    TravellersScreen OptionList:focus { border: none; background-tint: $ink 0%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n,N", "new", id="new_traveller"),
        Binding("r,R", "rename", id="rename"),
        Binding("d,D,delete", "delete", id="delete"),
    ]
    AUTO_FOCUS: ClassVar[str | None] = "OptionList"
    HELP_KEY: ClassVar[str] = "profile.help"

    def __init__(self) -> None:
        super().__init__()
        self._profiles: tuple[Profile, ...] = ()

    def body(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        with Center():
            yield OptionList(markup=False)

    def retell(self) -> None:
        try:
            self._profiles = self.session.profiles()
        except SaveError as error:
            self._profiles = ()
            self.notify(str(error), severity="warning", markup=False)
        heading = self.say("profile.roll")
        self.query_one("#heading", Static).update(Content(heading))
        chosen = self.query_one(OptionList)
        at = chosen.highlighted
        chosen.clear_options()
        chosen.add_options([Option(self._line(profile)) for profile in self._profiles])
        if self._profiles:
            playing = [i for i, one in enumerate(self._profiles) if self._plays(one)]
            at = at if at is not None else (playing[0] if playing else 0)
            chosen.highlighted = min(at, len(self._profiles) - 1)
        super().retell()

    def _plays(self, profile: Profile) -> bool:
        return self.session.profile is not None and self.session.profile.key == profile.key

    def _line(self, profile: Profile) -> Content:
        known = profile.stage in {stage.id for stage in self.session.stages}
        hall = self.session.stage_text(profile.stage).name if known else ""
        return Content.assemble(
            (" * " if self._plays(profile) else "   ", "bold $bronze-bright"),
            (pad(profile.name, NAME_CELLS), "$silver"),
            (pad(hall, 22), "$mist"),
            (profile.created_at[:10], "$faint"),
        )

    @property
    def _chosen(self) -> Profile | None:
        at = self.query_one(OptionList).highlighted
        return self._profiles[at] if at is not None and at < len(self._profiles) else None

    def key_words(self, binding_id: str) -> str | None:
        chosen = self._chosen
        if binding_id in ("go_on", "delete") and chosen is None:
            return None
        if binding_id == "rename" and (chosen is None or not self._plays(chosen)):
            return None
        if binding_id == "go_on":
            return self.say("profile.play_as")
        return super().key_words(binding_id)

    @on(OptionList.OptionHighlighted)
    def _moved(self) -> None:
        self.refresh_keys()

    @on(OptionList.OptionSelected)
    def _selected(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        self.action_go_on()

    def action_go_on(self) -> None:
        """Play on as the chosen one: their language, their mountain."""
        chosen = self._chosen
        if chosen is None:
            return
        try:
            self.session.use_profile(chosen.name)
        except SaveError as error:
            self.notify(str(error), severity="warning", markup=False)
            return
        self.hall.apply_settings()
        self.hall.set_language(self.session.settings.language)
        self.app.pop_screen()

    def action_back(self) -> None:
        self.app.pop_screen()

    def action_new(self) -> None:
        self.app.push_screen(NameScreen())

    def action_rename(self) -> None:
        chosen = self._chosen
        if chosen is not None and self._plays(chosen):
            self.app.push_screen(NameScreen(renaming=True))

    def action_delete(self) -> None:
        chosen = self._chosen
        if chosen is not None:
            self.app.push_screen(TakeOutScreen(chosen), self._take_out)

    def _take_out(self, sure: bool | None) -> None:
        chosen = self._chosen
        if not sure or chosen is None:
            return
        try:
            self.session.delete_profile(chosen.name)
        except SaveError as error:
            self.notify(str(error), severity="warning", markup=False)
        self.retell()


class TakeOutScreen(HallScreen[bool]):
    """Whether a traveller is to be taken off the roll. Ends with True only for a deliberate key."""

    DEFAULT_CSS: ClassVar[str] = """
    TakeOutScreen #ask { width: 100%; height: 1fr; content-align: center middle;
        text-align: center; padding: 0 4; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("y,Y", "take_out", id="take_out")]

    def __init__(self, profile: Profile) -> None:
        super().__init__()
        self._profile = profile

    def body(self) -> ComposeResult:
        yield Static(id="ask", markup=False)

    def retell(self) -> None:
        self.query_one("#ask", Static).update(
            Content.assemble(
                (self.say("profile.take_out.ask", name=self._profile.name), "bold $silver"),
                "\n\n",
                (self.say("profile.take_out.kept"), "$mist"),
            )
        )
        super().retell()

    def key_words(self, binding_id: str) -> str | None:
        return None if binding_id in ("ledger", "help") else super().key_words(binding_id)

    def action_take_out(self) -> None:
        self.dismiss(True)

    def action_back(self) -> None:
        self.dismiss(False)
