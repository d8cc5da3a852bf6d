"""Hints, in three steps. Taking one is a choice: the count goes into every record from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from game.attempt import HINTS
from game.screens.hall_screen import InHallScreen
from game.widgets.cells import wrap
from game.widgets.drawn import Picture
from game.widgets.ink import Line, Run
from game.widgets.typesetting import paragraph

if TYPE_CHECKING:
    from game.play import StageRun


class HintScreen(InHallScreen):
    """Lies over the forge or the verdict. After the last hint its build can be set at once."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("s,S", "set_build", id="set_build")]
    DEFAULT_CSS: ClassVar[str] = """
    HintScreen Picture { padding: 1 2 0 2; }
    HintScreen #hints { height: 1fr; }
    """
    HELP_KEY: ClassVar[str] = "help.play.hint"

    def __init__(self, visit: StageRun) -> None:
        super().__init__(visit)

    @property
    def hints(self) -> tuple[str, ...]:
        return self.visit.text.hints[:HINTS]

    @property
    def _left(self) -> int:
        return max(len(self.hints) - self.attempt.hints_taken, 0)

    def body(self) -> ComposeResult:
        yield Picture(self._draw, id="hints")

    def retell(self) -> None:
        self.query_one(Picture).refresh(layout=True)
        super().retell()

    def _draw(self, width: int, rows: int, plain: bool) -> list[Line]:
        taken = self.attempt.hints_taken
        lines: list[Line] = [(Run(self.say("hint.title", hall=self.visit.text.name), "bronze"),)]
        lines += [*paragraph(self.say("hint.cost"), width, "dim"), ()]
        for number, hint in enumerate(self.hints):
            head = f"{number + 1}  "
            if number >= taken:
                lines.append((Run(head, "faint"), Run(self.say("hint.closed"), "faint")))
            else:
                for row, text in enumerate(wrap(hint, max(width - len(head), 4))):
                    lead = head if row == 0 else " " * len(head)
                    lines.append((Run(lead, "bronze"), Run(text, "text")))
            lines.append(())
        lines.append((Run(self.say("hint.count", taken=taken, total=len(self.hints)), "dim"),))
        return lines

    def action_go_on(self) -> None:
        if self._left:
            self.attempt.take_hint()
            self.retell()
        else:
            self.action_back()

    def action_set_build(self) -> None:
        """Back in the forge with the knobs as the last hint has them."""
        self.app.pop_screen()
        if self.attempt.room != "forge":
            self.visit.tune_again()
        self.visit.set_build(self.attempt.stage.hint_build)

    def action_back(self) -> None:
        self.app.pop_screen()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        action = action.partition("(")[0]
        if action == "set_build":
            return self._left == 0 and bool(self.attempt.stage.hint_build)
        if action in ("hint", "look_back"):
            return False
        return super().check_action(action, parameters)

    def key_words(self, binding_id: str) -> str | None:
        if binding_id == "go_on":
            if not self._left:
                return None
            return self.say("hint.key.take", number=self.attempt.hints_taken + 1)
        return super().key_words(binding_id)
