"""Help: what this screen is for, the keys that act there and everywhere, the terms of the trade."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from game.screens.base import HallScreen
from game.widgets.cells import pad, wrap

TERMS = ("ttft", "tpot", "prefill", "decode", "kv_cache", "batch", "ceiling", "kl", "debt")
EVERYWHERE = ("go_on", "back", "hint", "ledger", "help", "language", "leave")
_KEYS = {
    "go_on": "Enter",
    "back": "Esc",
    "hint": "H",
    "ledger": "L",
    "help": "?",
    "language": "F2",
    "leave": "Ctrl+Q",
}
_KEY_CELLS, _TERM_CELLS, _WIDEST = 12, 12, 100


class HelpScreen(HallScreen[None]):
    """`about` is the screen the player came from."""

    DEFAULT_CSS: ClassVar[str] = """
    HelpScreen VerticalScroll { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    HelpScreen #told { width: 100%; height: auto; }
    """
    AUTO_FOCUS: ClassVar[str | None] = "VerticalScroll"

    def __init__(self, about: HallScreen[Any]) -> None:
        super().__init__()
        self._about = about

    def body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="told", markup=False)

    def retell(self) -> None:
        width = min(max(self.size.width - 6, 30), _WIDEST)
        parts: list[Content] = []
        if self._about.HELP_KEY:
            parts += [_heading(self.say("help.here"))]
            parts += [Content(line) for line in wrap(self.say(self._about.HELP_KEY), width)]
            parts += [Content("")]
        parts += [_heading(self.say("help.keys_here"))]
        hints = [hint for hint in self._about.key_hints() if hint.id not in EVERYWHERE[2:]]
        parts += [_entry(hint.key, _KEY_CELLS, [hint.words]) for hint in hints]
        parts += [Content(""), _heading(self.say("help.keys"))]
        parts += [
            _entry(_KEYS[key], _KEY_CELLS, wrap(self.say(f"help.key.{key}"), width - _KEY_CELLS))
            for key in EVERYWHERE
        ]
        parts += [Content(""), _heading(self.say("help.terms"))]
        for term in TERMS:
            words = wrap(self.say(f"help.term.{term}.is"), width - _TERM_CELLS)
            parts.append(_entry(self.say(f"help.term.{term}"), _TERM_CELLS, words))
        self.query_one("#told", Static).update(Content("\n").join(parts))
        super().retell()

    def key_words(self, binding_id: str) -> str | None:
        return None if binding_id == "help" else super().key_words(binding_id)

    def action_help(self) -> None:
        self.app.pop_screen()

    def action_back(self) -> None:
        self.app.pop_screen()


def _heading(text: str) -> Content:
    return Content.styled(text, "bold $bronze-bright")


def _entry(name: str, cells: int, lines: list[str]) -> Content:
    """A name in its column and its words beside it, on as many lines as they need."""
    first, *rest = lines
    entry = Content.assemble((pad(name, cells), "bold $bronze"), (first, "$silver"))
    return Content("\n").join([entry, *(Content(" " * cells + line) for line in rest)])
