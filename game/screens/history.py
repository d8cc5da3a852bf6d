"""What was said and judged in this hall: told again in the language of the moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from engine.domains import Value
from game.attempt import Told
from game.outcome import Outcome
from game.screens.hall_screen import InHallScreen
from game.screens.trial_log import verdict_line
from game.widgets.cells import wrap
from game.widgets.dialogue import VOICE
from game.widgets.drawn import Picture
from game.widgets.ink import Line, Run
from story.schema import Line as SceneLine

if TYPE_CHECKING:
    from game.play import StageRun


class HistoryScreen(InHallScreen):
    """Earlier trials on record first, then this visit's lines and verdicts, oldest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll(-1)", id="history_scroll", key_display="Up/Dn"),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("pagedown,space", "scroll(10)", show=False),
        Binding("home", "scroll(-9999)", show=False),
        Binding("end", "scroll(9999)", show=False),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    HistoryScreen VerticalScroll { height: 1fr; padding: 1 2 0 2; scrollbar-size-vertical: 1; }
    """
    HELP_KEY: ClassVar[str] = "help.play.history"

    def __init__(self, visit: StageRun) -> None:
        super().__init__(visit)
        now = {
            entry.record.digest
            for entry in visit.attempt.told
            if isinstance(entry, Outcome) and entry.record is not None
        }
        self.earlier = [
            record
            for record in visit.session.records()
            if record.stage == visit.attempt.stage.id and record.digest not in now
        ]

    def body(self) -> ComposeResult:
        with VerticalScroll(can_focus=False):
            yield Picture(self._draw)

    def on_mount(self) -> None:
        self.call_after_refresh(self.query_one(VerticalScroll).scroll_end, animate=False)

    def retell(self) -> None:
        self.query_one(Picture).refresh(layout=True)
        super().retell()

    def _draw(self, width: int, rows: int, plain: bool) -> list[Line]:
        title = self.say("history.title", hall=self.visit.text.name)
        lines: list[Line] = [(Run(title, "bronze"),), ()]
        for record in self.earlier:
            lines.append(self._judged(record.verdict, record.build, record.recorded_at))
        if self.earlier:
            lines.append(())
        for entry in self.attempt.told:
            if isinstance(entry, Outcome):
                verdict = {"word": entry.verdict.word, "metrics": entry.verdict.metrics}
                lines += [(), self._judged(verdict, entry.build, ""), ()]
            else:
                lines += self._told_lines(entry, width)
        return lines

    def _judged(self, verdict: Mapping[str, Any], build: Mapping[str, Value], when: str) -> Line:
        stage = self.attempt.stage
        return verdict_line(self.say, self.knob_words, stage, verdict, build, when)

    def _told_lines(self, told: Told, width: int) -> Iterator[Line]:
        line = self._line_of(told)
        if line is None:
            return
        who, text = line.who, line.text
        for choice in line.choices:
            if choice.id == told.reply:
                yield (Run(f"   > {choice.text}", "bronze"),)
                who, text = choice.who, choice.answer
        name = "" if who == "narrator" else f"{self.say(f'speaker.{who}')}: "
        for row, words in enumerate(wrap(name + text, max(width, 10))):
            head = name if row == 0 and words.startswith(name) else ""
            yield (Run(head, "bronze"), Run(words[len(head) :], VOICE[who]))

    def _line_of(self, told: Told) -> SceneLine | None:
        lines = self.visit.lines(told.scene, told.facts)
        return next((line for line in lines if line.id == told.line), None)

    def action_scroll(self, rows: int) -> None:
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_relative(y=rows, animate=False)

    def action_back(self) -> None:
        self.app.pop_screen()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        action = action.partition("(")[0]
        if action == "look_back":
            return False
        return super().check_action(action, parameters)
