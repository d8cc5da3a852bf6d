"""A scene: the set piece above, the voices below, one line at a time, at the reader's speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.timer import Timer

from game.attempt import Told
from game.screens.hall_screen import InHallScreen
from game.widgets.dialogue import Dialogue
from story.schema import Line, SceneName, Speaker

if TYPE_CHECKING:
    from game.play import StageRun
    from story.facts import FactValue

_AUTO_LEAST_SECONDS = 1.2
_AUTO_CELLS_PER_SECOND = 22.0


class SceneScreen(InHallScreen):
    """Tells the lines of one scene. Skipping stops at an unseen line and at every choice.

    A line is kept by its id, so that it can be told again in another language as far as it had
    appeared. After a choice its answer is told as a line of its own.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "go_on", show=False),
        Binding("a,A", "auto", id="auto"),
        Binding("s,S", "skip_seen", id="skip_seen"),
        Binding("up", "choose(-1)", show=False),
        Binding("down", "choose(1)", show=False),
        *(Binding(str(digit), f"reply({digit})", show=False) for digit in range(1, 10)),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    SceneScreen HallPiece { height: 1fr; }
    SceneScreen Dialogue { margin: 0 1; }
    """
    HELP_KEY: ClassVar[str] = "help.play.scene"

    def __init__(self, visit: StageRun, scene: SceneName, facts: Mapping[str, FactValue]) -> None:
        super().__init__(visit)
        self.scene = scene
        self.facts = facts
        self.index = 0
        self.reply: str | None = None
        self._over = False
        self._seen_before = False
        self._auto_timer: Timer | None = None

    def body(self) -> ComposeResult:
        yield self.make_piece()
        yield Dialogue()

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.visit.lines(self.scene, self.facts)

    @property
    def line(self) -> Line:
        return self.lines[self.index]

    @property
    def dialogue(self) -> Dialogue:
        return self.query_one(Dialogue)

    def on_mount(self) -> None:
        self._tell()

    def retell(self) -> None:
        if self.dialogue.text and not self._over:
            self._say(again=True)
        self._name_modes()
        super().retell()

    # One line after another

    def _tell(self) -> None:
        """Tell the line at hand, passing over those already seen where that is wanted."""
        self._seen_before = self._was_seen(self.line.id)
        while self._may_skip():
            self._remember()
            if not self._next():
                return
            self._seen_before = self._was_seen(self.line.id)
        self._say(again=False)
        self._remember()
        self._name_modes()
        self.refresh_keys()

    def _may_skip(self) -> bool:
        """Seen before it was told this time: the line at hand counts as seen only from now on."""
        line = self.line
        return (
            self.session.settings.skip_seen
            and self.reply is None
            and not line.choices
            and self._seen_before
        )

    def _was_seen(self, line_id: str) -> bool:
        profile = self.session.profile
        return profile is not None and line_id in profile.seen

    def _remember(self) -> None:
        """Into the history and among the seen lines, from the moment it begins to appear."""
        self.visit.remember(Told(self.scene, self.line.id, self.facts, self.reply))

    def _next(self) -> bool:
        """Move to the next line; False, and the scene ends, after the last."""
        self.reply = None
        if self.index + 1 >= len(self.lines):
            self._over = True
            self.visit.scene_over()
            return False
        self.index += 1
        return True

    def _say(self, again: bool) -> None:
        who, text, replies = self._words()
        name = "" if who == "narrator" else self.say(f"speaker.{who}")
        self.dialogue.say(who, name, text, replies, self._speed, again)

    @property
    def _speed(self) -> int:
        """Characters a second; 0, all at once, while a clock runs that typing would disturb."""
        return 0 if self.calm else self.session.settings.text_speed

    def _words(self) -> tuple[Speaker, str, tuple[str, ...]]:
        line = self.line
        for choice in line.choices:
            if choice.id == self.reply:
                return choice.who, choice.answer, ()
        return line.who, line.text, tuple(choice.text for choice in line.choices)

    # Keys

    def action_go_on(self) -> None:
        self._stop_waiting()
        if self._over or self.dialogue.advance():
            return
        if self.dialogue.choosing:
            self.action_reply(self.dialogue.cursor + 1)
            return
        if self._next():
            self._tell()

    def action_choose(self, steps: int) -> None:
        self.dialogue.move(steps)

    def action_reply(self, number: int) -> None:
        """Answer with choice `number` (from 1), once the choices stand on the screen."""
        choices = self.line.choices
        if self.reply is not None or not self.dialogue.choosing or number > len(choices):
            return
        self.reply = choices[number - 1].id
        self._say(again=False)
        self._remember()
        self.refresh_keys()

    def action_auto(self) -> None:
        self.session.update_settings(auto=not self.session.settings.auto)
        self._name_modes()
        self.refresh_keys()
        if self.session.settings.auto and self.dialogue.page_done:
            self._wait()
        else:
            self._stop_waiting()

    def action_skip_seen(self) -> None:
        self.session.update_settings(skip_seen=not self.session.settings.skip_seen)
        self._name_modes()
        self.refresh_keys()
        if self._may_skip() and self._next():
            self._tell()

    def on_click(self, event: events.Click) -> None:
        self.action_go_on()

    def on_dialogue_chosen(self, message: Dialogue.Chosen) -> None:
        self.action_reply(message.number + 1)

    # Going on by itself

    def on_dialogue_completed(self) -> None:
        self.refresh_keys()
        if self.session.settings.auto:
            self._wait()

    def _wait(self) -> None:
        """Leave a complete line standing as long as it takes to read, then go on."""
        self._stop_waiting()
        if self.dialogue.choosing or self._over:
            return
        seconds = max(self.dialogue.page_cells / _AUTO_CELLS_PER_SECOND, _AUTO_LEAST_SECONDS)
        self._auto_timer = self.set_timer(seconds, self._go_on_by_itself)

    def _stop_waiting(self) -> None:
        if self._auto_timer is not None:
            self._auto_timer.stop()
            self._auto_timer = None

    def _go_on_by_itself(self) -> None:
        self._auto_timer = None
        settings = self.session.settings
        if settings.auto and self.is_current and not self.dialogue.choosing:
            self.action_go_on()

    def on_screen_resume(self) -> None:
        if self.is_mounted and self.session.settings.auto and self.dialogue.page_done:
            self._wait()

    def _name_modes(self) -> None:
        settings = self.session.settings
        modes = [
            self.say(f"scene.mode.{mode}")
            for mode, on in (("auto", settings.auto), ("skip_seen", settings.skip_seen))
            if on
        ]
        place = f"{self.visit.text.name}  {self.index + 1}/{len(self.lines)}"
        self.dialogue.border_subtitle = Content("  ".join((*modes, place)))

    def key_words(self, binding_id: str) -> str | None:
        if binding_id == "go_on":
            choosing = self.is_mounted and self.dialogue.choosing
            return self.say("scene.key.answer" if choosing else "key.go_on")
        if binding_id == "back":
            return self.say("key.to_map")
        return super().key_words(binding_id)
