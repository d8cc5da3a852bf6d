"""The engine did not wake: what that means, and what can be done. Nothing is lost by it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from engine.clean import clean
from engine.model.errors import ModelError
from engine.model.fetch import FetchProgress, default_path, fetch_default
from game.screens.base import HallScreen
from game.waking import EngineState
from game.widgets.cells import wrap
from game.widgets.figures import size

_LONGEST_WORDS = 1200  # characters of the engine's own message that are shown
_WIDEST = 76  # cells


class TroubleScreen(HallScreen[None]):
    """Stays until the engine wakes, and then leaves by itself."""

    DEFAULT_CSS: ClassVar[str] = """
    TroubleScreen VerticalScroll { height: 1fr; align: center middle; }
    TroubleScreen #told { width: 78; height: auto; padding: 1 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r,R", "again", id="again"),
        Binding("f,F", "fetch", id="fetch"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._fetching: FetchProgress | None = None
        self._fetch_fault = ""

    def body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="told", markup=False)

    @property
    def model_missing(self) -> bool:
        """Whether the default model is the thing that lacks."""
        state = self.hall.engine_state
        return state.kind == "SessionInputError" and not default_path().exists()

    def retell(self) -> None:
        width = min(max(self.size.width - 6, 20), _WIDEST)
        cause = "model" if self.model_missing else "engine"
        parts = [
            Content.styled(self.say("trouble.heading"), "bold $bronze-bright"),
            Content(""),
            *self._lines(self.say(f"trouble.{cause}"), width, "$silver"),
            Content(""),
            *self._lines(self.say("trouble.kept"), width, "$mist"),
            Content(""),
            *self._lines(self._own_words(), width, "$faint"),
        ]
        if self._fetching is not None:
            parts += [
                Content(""),
                Content.styled(self._fetch_words(self._fetching), "$cyan-bright"),
            ]
        self.query_one("#told", Static).update(Content("\n").join(parts))
        super().retell()

    @staticmethod
    def _lines(text: str, width: int, style: str) -> list[Content]:
        return [Content.styled(line, style) for line in wrap(text, width)]

    def _own_words(self) -> str:
        words = self._fetch_fault or self.hall.engine_state.trouble
        return clean(words, limit=_LONGEST_WORDS)

    def _fetch_words(self, progress: FetchProgress) -> str:
        return self.say(
            f"trouble.fetch.{progress.phase}", done=size(progress.done), total=size(progress.total)
        )

    def key_words(self, binding_id: str) -> str | None:
        busy = self._fetching is not None or self.hall.engine_state.busy
        if binding_id == "fetch" and (busy or not self.model_missing):
            return None
        if binding_id == "again" and busy:
            return None
        return super().key_words(binding_id)

    def engine_changed(self, state: EngineState) -> None:
        if state.phase == "awake" and self.is_current:
            self.app.pop_screen()
            return
        self.retell()

    def action_again(self) -> None:
        """Try to wake the engine once more."""
        self._fetch_fault = ""
        self.hall.wake_engine()

    def action_fetch(self) -> None:
        """Get the default model, then wake the engine."""
        if self._fetching is None and self.model_missing:
            self._fetch_fault = ""
            self._fetching = FetchProgress("download", 0, 0)
            self.run_worker(self._fetch, thread=True, exclusive=True, exit_on_error=False)
            self.retell()

    def _fetch(self) -> None:
        """Runs in a thread: the download may take minutes and must not hold a frame."""
        try:
            fetch_default(lambda progress: self.app.call_from_thread(self._heard, progress))
        except (ModelError, OSError) as error:
            self.app.call_from_thread(self._fetched, str(error))
        else:
            self.app.call_from_thread(self._fetched, "")

    def _heard(self, progress: FetchProgress) -> None:
        self._fetching = progress
        if self.told:
            self.retell()

    def _fetched(self, fault: str) -> None:
        self._fetching, self._fetch_fault = None, fault
        if self.told:
            self.retell()
        if not fault:
            self.hall.wake_engine()

    def action_back(self) -> None:
        self.app.pop_screen()
