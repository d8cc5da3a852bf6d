"""What every screen of the hall has: the session, its words, the common keys, the key strip."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen, ScreenResultType

from game.screens.too_small import TooSmall, too_small
from game.waking import EngineState
from game.widgets.keys import KeyHint, KeyStrip

if TYPE_CHECKING:
    from game.app import LatencyWallApp
    from game.session import Session

KEY_NAMES = {
    "enter": "Enter",
    "escape": "Esc",
    "question_mark": "?",
    "space": "Space",
    "tab": "Tab",
    "left": "<",
    "right": ">",
    "backspace": "Bksp",
    "delete": "Del",
    "f2": "F2",
    "ctrl+q": "Ctrl+Q",
}
"""How a key is written on the strip; a single letter is written as its capital."""


def key_name(key: str) -> str:
    return KEY_NAMES.get(key, key.upper() if len(key) == 1 else key.capitalize())


class HallScreen(Screen[ScreenResultType]):
    """A screen that speaks the player's language and can change it at any moment.

    A subclass yields its widgets from `body()`, sets its texts in `retell()`, and defines
    `action_go_on`, `action_back`, `action_hint` where those keys mean something: a common key
    whose action is not defined does nothing and is not shown. A binding of its own that has an
    `id` is shown on the key strip with the interface text `key.<id>`; `key_words` may change the
    words, or hide the key by returning None. A binding without an id works and is not shown.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "go_on", id="go_on", tooltip="Go on"),
        Binding("escape", "back", id="back", tooltip="Step back"),
        Binding("h,H", "hint", id="hint", tooltip="Take a hint"),
        Binding("l,L", "ledger", id="ledger", tooltip="Open the ledger"),
        Binding("question_mark,fullwidth_question_mark", "help", id="help", tooltip="Help"),
        Binding("f2", "app.switch_language", id="language", tooltip="中文 / English"),
        Binding("ctrl+q", "app.leave", id="leave", tooltip="Leave", priority=True),
    ]
    AUTO_FOCUS: ClassVar[str | None] = ""
    HELP_KEY: ClassVar[str] = ""
    """Interface text that says in a few lines what this screen is for; shown by `?`."""

    @property
    def hall(self) -> LatencyWallApp:
        return cast("LatencyWallApp", self.app)

    @property
    def session(self) -> Session:
        return self.hall.session

    @property
    def reduced_motion(self) -> bool:
        return self.hall.reduced_motion

    @property
    def calm(self) -> bool:
        """True while something is timed: nothing may animate faster than 2 Hz."""
        return self.hall.calm

    def say(self, key: str, **values: object) -> str:
        """The interface text `key` in the current language, its `{name}`s filled from `values`."""
        return self.session.text(key, **values)

    def compose(self) -> ComposeResult:
        yield from self.body()
        yield KeyStrip()
        yield TooSmall()

    def body(self) -> ComposeResult:
        """The screen's own widgets, above the key strip."""
        yield from ()

    told = False
    """True once the screen has its widgets and their texts, so that they can be set again."""

    def on_mount(self) -> None:
        self.told = True
        self.retell()

    def on_screen_resume(self) -> None:
        if self.told:
            self.retell()

    def retell(self) -> None:
        """Set every text again; called on mount, on return, and when the language changes.

        A subclass calls `super().retell()` last, so that the key strip agrees with its state.
        """
        self.refresh_keys()

    def refresh_keys(self) -> None:
        """Show the keys that act now. Call it when what they do has changed."""
        for strip in self.query(KeyStrip):
            strip.show(self.key_hints())

    def key_hints(self) -> list[KeyHint]:
        """The keys that act here, this screen's own first, then the common ones."""
        hints: list[KeyHint] = []
        seen: set[str] = set()
        for binding in self._bindings.key_to_bindings.values():
            for one in binding:
                words = None if one.id is None or one.id in seen else self._words_of(one)
                if words is None or one.id is None:
                    continue
                seen.add(one.id)
                key = one.key_display or key_name(one.key)
                hints.append(KeyHint(one.id, key, words, one.action))
        return sorted(hints, key=lambda hint: _rank(hint.id))

    def _words_of(self, binding: Binding) -> str | None:
        namespace, _, action = binding.action.rpartition(".")
        if not namespace and self.check_action(action, ()) is not True:
            return None
        return self.key_words(binding.id or "")

    def key_words(self, binding_id: str) -> str | None:
        """What the key with this id does here, in the current language; None hides it."""
        if binding_id == "language" and self.hall.plain_glyphs:
            return self.say("key.language_plain")
        return self.say(f"key.{binding_id}")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A common key acts only where a subclass defined what it does."""
        if action in ("go_on", "back", "hint"):
            return hasattr(self, f"action_{action}")
        return True

    def action_ledger(self) -> None:
        self.hall.open_ledger()

    def action_help(self) -> None:
        self.hall.open_help(self)

    def engine_changed(self, state: EngineState) -> None:
        """The engine process woke, works, or failed; a screen that shows it says so."""

    def on_resize(self, event: events.Resize) -> None:
        for veil in self.query(TooSmall):
            veil.show(event.size if too_small(event.size) else None)


_ORDER = ("go_on", "back")
_LAST = ("hint", "ledger", "help", "language", "leave")


def _rank(binding_id: str) -> int:
    if binding_id in _ORDER:
        return _ORDER.index(binding_id)
    return 100 + _LAST.index(binding_id) if binding_id in _LAST else 50
