"""The insight: the rule as the Elder tells it, beside the formula with the player's own numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from game.screens.scene import SceneScreen
from game.widgets.cells import wrap
from game.widgets.dialogue import Dialogue
from game.widgets.drawn import Picture
from game.widgets.hall_piece import HallPiece
from game.widgets.ink import Ink, Line, Run
from story.facts import quote

if TYPE_CHECKING:
    from game.play import StageRun

_PIECE_ROWS = 36


class InsightScreen(SceneScreen):
    """A scene told under the tablet that stays: formula, published figure, correction."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("t,T", "tune", id="tune")]
    DEFAULT_CSS: ClassVar[str] = """
    InsightScreen #tablet { height: 1fr; padding: 1 2 0 2; }
    InsightScreen.-piece #tablet { height: auto; }
    InsightScreen.-short #tablet { padding: 0 2; }
    InsightScreen.-short Dialogue { height: 7; }
    """
    HELP_KEY: ClassVar[str] = "help.play.insight"

    def __init__(self, visit: StageRun) -> None:
        super().__init__(visit, "insight", visit.facts())
        self._first = 0

    def body(self) -> ComposeResult:
        yield self.make_piece()
        yield Picture(self._draw_tablet, id="tablet")
        yield Dialogue()

    def on_mount(self) -> None:
        self._arrange()

    def retell(self) -> None:
        self._arrange()
        self.query_one("#tablet", Picture).refresh(layout=True)
        super().retell()

    def _arrange(self) -> None:
        roomy = self.app.size.height >= _PIECE_ROWS
        self.set_class(roomy, "-piece")
        self.query_one(HallPiece).display = roomy
        self.dialogue.display = bool(self.lines)

    def _draw_tablet(self, width: int, rows: int, plain: bool) -> list[Line]:
        """All of the tablet, or the part turned to where it is longer than its place."""
        lines = self._tablet(width)
        if rows and len(lines) > rows:
            self._first = min(self._first, len(lines) - rows)
            return lines[self._first : self._first + rows]
        return lines

    def _tablet(self, width: int) -> list[Line]:
        text = self.visit.text
        lines: list[Line] = [(Run(self.say("insight.title", hall=text.name), "bronze"),), ()]
        told: tuple[tuple[str, str | None, Ink], ...] = (
            ("insight.formula", quote(text.formula, self.facts), "silver"),
            ("insight.published", quote(text.published, self.facts), "text"),
            ("insight.correction", quote(text.correction, self.facts), "text"),
        )
        for key, words, ink in told:
            if not words:
                continue
            lines.append((Run(self.say(key), "dim"),))
            lines += [(Run("  " + line, ink),) for line in wrap(words.strip(), max(width - 2, 4))]
        opened = self._opened()
        if opened:
            lines += [(), (Run(self.say("insight.opened", hall=opened), "wall"),)]
        return lines

    def _opened(self) -> str:
        """The hall this one opens, where it is built."""
        for stage in self.session.stages:
            if stage.opens_after == self.attempt.stage.id and stage.open:
                return self.session.stage_text(stage.id).name
        return ""

    def action_go_on(self) -> None:
        if not self.lines:
            self.visit.scene_over()
        else:
            super().action_go_on()

    @property
    def _overflow(self) -> int:
        """Lines of the tablet beyond its place."""
        tablet = self.query_one("#tablet", Picture)
        width, height = tablet.content_size
        return len(self._tablet(width)) - height if width > 1 and height > 0 else 0

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "turn_view" and self._overflow > 0:
            return True
        return super().check_action(action, parameters)

    def action_turn_view(self) -> None:
        """Turn a long tablet on; else the set piece's views."""
        if self._overflow <= 0:
            super().action_turn_view()
            return
        rows = self.query_one("#tablet", Picture).content_size.height
        self._first = 0 if self._first >= self._overflow else self._first + max(rows - 2, 1)
        self.query_one("#tablet", Picture).refresh()

    def action_tune(self) -> None:
        self.visit.tune_again()

    def _tell(self) -> None:
        if self.lines:
            super()._tell()
