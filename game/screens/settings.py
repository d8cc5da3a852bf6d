"""Settings: each takes effect at once, and is kept with the profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from game.screens.base import HallScreen
from game.widgets.cells import wrap
from game.widgets.setting_row import SettingRow, SettingView

CHOICES: Mapping[str, tuple[Any, ...]] = {
    "language": ("zh", "en"),
    "text_speed": (20, 40, 80, 0),
    "auto": (False, True),
    "skip_seen": (False, True),
    "reduced_motion": (False, True),
    "colour": ("auto", "none"),
}
"""What each row moves through, in order. A value set elsewhere joins its row where it stands."""


def choices(setting: str, now: Any) -> tuple[Any, ...]:
    known = CHOICES[setting]
    return known if now in known else (now, *known)


class SettingsScreen(HallScreen[None]):
    DEFAULT_CSS: ClassVar[str] = """
    SettingsScreen #heading { height: 2; padding: 0 1; color: $bronze-bright; text-style: bold; }
    SettingsScreen #rows { height: auto; }
    SettingsScreen #about { height: 1fr; padding: 1 3; color: $mist; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)"),
        Binding("down,j", "move(1)"),
        Binding("left", "turn(-1)"),
        Binding("right,space", "turn(1)", id="turn", key_display="<>"),
    ]
    HELP_KEY: ClassVar[str] = "settings.help"

    def __init__(self) -> None:
        super().__init__()
        self._chosen = 0

    def body(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        with Vertical(id="rows"):
            for setting in CHOICES:
                yield SettingRow(setting)
        yield Static(id="about", markup=False)

    @property
    def setting(self) -> str:
        """The row that is chosen."""
        return tuple(CHOICES)[self._chosen]

    def retell(self) -> None:
        self.query_one("#heading", Static).update(Content(self.say("settings.heading")))
        mark = self.hall.here_mark
        for row in self.query(SettingRow):
            row.show(self._view(row.setting), row.setting == self.setting, mark)
        about = wrap(self.say(f"settings.{self.setting}.about"), max(self.size.width - 8, 20))
        self.query_one("#about", Static).update(Content("\n".join(about)))
        super().retell()

    def _view(self, setting: str) -> SettingView:
        now = getattr(self.session.settings, setting)
        values = choices(setting, now)
        return SettingView(
            name=self.say(f"settings.{setting}"),
            values=[self._words(setting, value) for value in values],
            now=values.index(now),
            about=self.say(f"settings.{setting}.about"),
        )

    def _words(self, setting: str, value: Any) -> str:
        if isinstance(value, bool):
            return self.say("settings.on" if value else "settings.off")
        if setting == "text_speed" and value not in CHOICES["text_speed"]:
            return str(value)
        if setting == "language" and value == "zh" and self.hall.plain_glyphs:
            return "Chinese"
        return self.say(f"settings.{setting}.{value}")

    def key_words(self, binding_id: str) -> str | None:
        if binding_id == "go_on":
            return self.say("settings.turn")
        return None if binding_id == "turn" else super().key_words(binding_id)

    def action_move(self, by: int) -> None:
        self._chosen = (self._chosen + by) % len(CHOICES)
        self.retell()

    def action_go_on(self) -> None:
        self.action_turn(1)

    def action_turn(self, by: int) -> None:
        """The next or the previous value of the chosen setting, round and round."""
        values = choices(self.setting, getattr(self.session.settings, self.setting))
        at = values.index(getattr(self.session.settings, self.setting))
        self._set(self.setting, values[(at + by) % len(values)])

    def action_take(self, setting: str, number: int) -> None:
        self._chosen = tuple(CHOICES).index(setting)
        self._set(setting, choices(setting, getattr(self.session.settings, setting))[number])

    def _set(self, setting: str, value: Any) -> None:
        if setting == "language":
            self.hall.set_language(value)
        else:
            self.session.update_settings(**{setting: value})
            self.hall.apply_settings()
            self.hall.tell_notices()
            self.retell()

    def action_back(self) -> None:
        self.app.pop_screen()

    @on(SettingRow.Chosen)
    def _clicked(self, message: SettingRow.Chosen) -> None:
        message.stop()
        self._chosen = tuple(CHOICES).index(message.setting)
        self.retell()
