"""The application: one session, one stack of screens, one language at a time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual.app import App
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.filter import LineFilter
from textual.screen import Screen

from game.screens.base import HallScreen
from game.theme import HALL, NAME, VARIABLES, NoColour, colour_forbidden
from game.waking import EngineState, heard

if TYPE_CHECKING:
    from engine.messages import AnyEvent
    from game.session import Session
    from game.widgets.runes import Script
    from story.schema import Language

StartScreen = Literal["title", "map"]
_GOODBYE_SECONDS = 3.0
_FIRST_FRAME_SECONDS = 0.1
_NOTICE_SECONDS = 20.0


class LatencyWallApp(App[None]):
    """`start` is the screen shown first; without a profile the language is asked before it."""

    TITLE = "Latency Wall"
    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = Path(__file__).with_name("theme.tcss")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "leave", id="leave_app", show=False, priority=True),
        Binding("f2", "switch_language", id="language_app", show=False, priority=True),
        Binding("ctrl+c", "leave_hint", show=False, system=True),
    ]

    def __init__(self, session: Session, start: StartScreen = "title") -> None:
        self.session = session
        self.start = start
        self.calm = False
        self.engine_state = EngineState()
        self.plain_glyphs = terminal_is_ascii()
        self._no_colour = NoColour()
        self._shown_colourless = self.colourless
        super().__init__()
        self.register_theme(HALL)
        self.theme = NAME

    # Looks

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return VARIABLES

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's filters, but with no colour at all where none is wanted, not a grey scale."""
        return [self._no_colour] if self.colourless else super().get_line_filters()

    @property
    def colourless(self) -> bool:
        return colour_forbidden() or self.session.settings.colour == "none"

    @property
    def reduced_motion(self) -> bool:
        return self.session.settings.reduced_motion

    @property
    def script(self) -> Script:
        """The signs the Wall is written in."""
        return "ascii" if self.plain_glyphs else self.session.settings.language

    @property
    def here_mark(self) -> str:
        """The sign before a chosen line."""
        return ">" if self.plain_glyphs else "▸"

    def printable(self, text: str) -> str:
        """`text`, or nothing where it is an ornament this terminal cannot show."""
        return "" if self.plain_glyphs and not text.isascii() else text

    def apply_settings(self) -> None:
        """Make the profile's settings visible at once."""
        self.set_calm(self.calm)
        self.set_class(self.plain_glyphs, "-plain-glyphs")
        if self.colourless != self._shown_colourless:
            self._shown_colourless = self.colourless
            self.refresh_css(animate=False)

    def set_calm(self, calm: bool) -> None:
        """While calm nothing may animate faster than 2 Hz: something is on the clock."""
        self.calm = calm
        self.animation_level = "none" if self.reduced_motion or calm else "full"

    # Screens

    def get_default_screen(self) -> Screen[None]:
        from game.screens.title import TitleScreen

        return TitleScreen()

    def on_mount(self) -> None:
        self.apply_settings()
        if self.session.profile is None:
            from game.screens.profile import LanguageScreen

            self.push_screen(LanguageScreen())
        elif self.start == "map":
            self.open_map()
        # A timer of the application, and not `call_after_refresh`: that waits for the screen of
        # this moment, which a fast hand has left before it was ever drawn.
        self.set_timer(_FIRST_FRAME_SECONDS, self._after_first_frame)

    def _after_first_frame(self) -> None:
        # The command line may start with the collector off: it costs a tenth of the way here.
        gc.enable()
        self.wake_engine()
        self.tell_notices()

    def tell_notices(self) -> None:
        """Show what happened to saves: each notice once, long enough to be read."""
        for notice in self.session.take_notices():
            self.notify(notice, severity="warning", timeout=_NOTICE_SECONDS, markup=False)

    def switch_screen(self, screen: Screen[Any] | str) -> AwaitComplete:
        """Put `screen` in place of the one that lies on the map (or the title).

        What the player has laid over that one meanwhile, help or the ledger, goes with it: a
        verdict must not replace the page that happened to be on top.
        """
        from game.screens.map import MapScreen

        maps = [at for at, one in enumerate(self.screen_stack) if isinstance(one, MapScreen)]
        ground = maps[-1] if maps else 0
        while len(self.screen_stack) > ground + 2:
            self.pop_screen()
        return super().switch_screen(screen)

    def open_map(self) -> None:
        from game.screens.map import MapScreen

        self.push_screen(MapScreen())

    def open_new_journey(self) -> None:
        from game.screens.profile import NameScreen

        self.push_screen(NameScreen(), self._set_out)

    def _set_out(self, created: bool | None) -> None:
        if created:
            self.apply_settings()
            self.open_map()

    def open_travellers(self) -> None:
        from game.screens.profile import TravellersScreen

        self.push_screen(TravellersScreen())

    def open_settings(self) -> None:
        from game.screens.settings import SettingsScreen

        self.push_screen(SettingsScreen())

    def open_ledger(self) -> None:
        from game.screens.ledger import LedgerScreen

        if not isinstance(self.screen, LedgerScreen):
            self.push_screen(LedgerScreen())

    def open_help(self, about: HallScreen[Any]) -> None:
        from game.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(about))

    def open_trouble(self) -> None:
        from game.screens.trouble import TroubleScreen

        if not isinstance(self.screen, TroubleScreen):
            self.push_screen(TroubleScreen())

    def open_stage(self, stage_id: str) -> None:
        """Walk into a hall: scenes first; the engine is only needed when its trial begins."""
        from game.play import StageRun

        self.session.stand_at(stage_id)
        StageRun(self, stage_id).start()

    # Language

    def set_language(self, language: Language) -> None:
        """Speak `language` from now on, on every screen of the stack."""
        self.session.update_settings(language=language)
        for screen in self.screen_stack:
            if isinstance(screen, HallScreen) and screen.told:
                screen.retell()

    def action_switch_language(self) -> None:
        self.set_language("en" if self.session.settings.language == "zh" else "zh")

    # The engine process

    def wake_engine(self) -> None:
        """Start the engine in the background; a second call while it starts is ignored."""
        if self.engine_state.phase in ("asleep", "failed"):
            self._show_engine(EngineState("waking"))
            self.run_worker(self._wake(), group="engine", exclusive=True, exit_on_error=False)

    async def _wake(self) -> None:
        try:
            await self.session.ready(self._hear)
        except (OSError, ValueError, RuntimeError) as error:
            # A sentence for the player: no model, no network, no process. Play goes on without.
            self._show_engine(EngineState("failed", trouble=str(error), kind=type(error).__name__))
        else:
            self._show_engine(EngineState("awake"))

    def _hear(self, event: AnyEvent) -> None:
        self._show_engine(heard(self.engine_state, event))

    def check_engine(self) -> None:
        """A trial may have woken the engine by itself, after it had failed at the start."""
        if self.session.engine_ready and not self.engine_state.busy:
            self._show_engine(EngineState("awake"))

    def engine_words(self) -> str:
        """The engine's state in the current language."""
        state = self.engine_state
        seconds = state.seconds_left
        if state.phase == "calibrating" and seconds is not None:
            return self.session.text("engine.calibrating_left", seconds=max(round(seconds), 1))
        return self.session.text(f"engine.{state.phase}")

    def _show_engine(self, state: EngineState) -> None:
        if state.timed != self.engine_state.timed:
            self.set_calm(state.timed)
        self.engine_state = state
        for screen in self.screen_stack:
            if isinstance(screen, HallScreen) and screen.told:
                screen.engine_changed(state)

    # Leaving

    def action_leave_hint(self) -> None:
        self.notify(self.session.text("leave.how"), markup=False)

    async def action_leave(self) -> None:
        """Stop what runs, let the engine go, and leave. Records are already on disk."""
        with contextlib.suppress(TimeoutError, OSError, RuntimeError):
            await asyncio.wait_for(self.session.close(), _GOODBYE_SECONDS)
        self.exit()


def terminal_is_ascii() -> bool:
    """Whether the locale asks for ASCII, or the console has no glyphs beyond a code page."""
    if os.environ.get("TERM") in ("linux", "vt100", "vt220", "dumb"):
        return True
    locale = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or os.environ.get("LANG") or ""
    if locale in ("C", "POSIX"):
        return True
    encoding = locale.partition(".")[2] or getattr(sys.stdout, "encoding", None) or "utf-8"
    return encoding.lower().replace("-", "") not in ("utf8", "utf8mb4")
