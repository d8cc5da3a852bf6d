"""The bet: one question, one instrument, and a seal that is set on purpose and never lifted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from game.rules.progress import (
    CLOSE_DIAL,
    DIAL_LEAST,
    DIAL_MOST,
    RIGHT_CHOICE,
    WRONG_CHOICE,
)
from game.screens.hall_screen import InHallScreen
from game.widgets.cells import wrap
from game.widgets.dial import Dial
from game.widgets.drawn import Picture
from game.widgets.figures import plain_number
from game.widgets.hall_piece import Frame
from game.widgets.ink import Ink, Line, Run
from game.widgets.typesetting import paragraph

if TYPE_CHECKING:
    from game.play import StageRun
    from story.schema import Guess

LETTERS = "ABCDEFGHI"
_DIAL_ACTIONS = frozenset({"turn", "digit", "erase", "end"})
_CHOICE_ACTIONS = frozenset({"pick", "move"})


class GuessScreen(InHallScreen):
    """Enter arms the seal and Enter again sets it; any other move lifts the hand.

    An instrument nobody touched cannot be sealed: Enter, pressed on through a scene, is no guess.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "turn(-1)", id="turn", key_display="<>"),
        Binding("right", "turn(1)", show=False),
        Binding(
            "shift+left,left_square_bracket", "turn(-1, True)", id="turn_fine", key_display="[]"
        ),
        Binding("shift+right,right_square_bracket", "turn(1, True)", show=False),
        Binding("home", "end(0)", show=False),
        Binding("end", "end(1)", show=False),
        Binding("backspace", "erase", show=False),
        *(Binding(sign, f"digit('{sign}')", show=False) for sign in "0123456789"),
        Binding("full_stop", "digit('.')", show=False),
        Binding("up", "move(-1)", id="pick", key_display="Up/Dn"),
        Binding("down", "move(1)", show=False),
        *(
            Binding(f"{letter.lower()},{letter}", f"pick({place})", show=False)
            for place, letter in enumerate(LETTERS)
        ),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    GuessScreen HallPiece { height: 1fr; }
    GuessScreen Picture { padding: 0 2; }
    GuessScreen Dial { margin: 1 2 0 2; }
    GuessScreen #question { margin-top: 1; }
    GuessScreen #choices { margin-top: 1; }
    GuessScreen #stakes { margin-top: 1; }
    GuessScreen #seal { margin: 1 0; }
    GuessScreen.-short #seal { margin: 1 0 0 0; }
    GuessScreen.-short HallPiece { display: none; }
    """
    HELP_KEY: ClassVar[str] = "help.play.guess"

    def __init__(self, visit: StageRun) -> None:
        super().__init__(visit)
        self.armed = False
        self.touched = False
        self.cursor = -1
        self.entry = ""

    @property
    def rule(self) -> Guess:
        rule = self.attempt.stage.guess
        assert rule is not None
        return rule

    @property
    def dial(self) -> Dial:
        return self.query_one(Dial)

    @property
    def value(self) -> float | str:
        """What the instrument shows: the guess, if it were sealed now."""
        return self.rule.choices[max(self.cursor, 0)] if self._choosing else self.dial.value

    @property
    def _choosing(self) -> bool:
        return self.rule.kind == "choice"

    def body(self) -> ComposeResult:
        yield self.make_piece()
        yield Picture(id="question")
        if self._choosing:
            yield Picture(id="choices")
        else:
            yield Dial(self.rule.low, self.rule.high, self.rule.close)
        yield Picture(id="stakes")
        yield Picture(id="seal")

    def on_mount(self) -> None:
        if not self._choosing:
            self.dial.set_value(min(max(3.0, self.rule.low), self.rule.high))

    def retell(self) -> None:
        question = self.visit.text.question
        self._picture("question").show(lambda width, _, plain: paragraph(question, width, "strong"))
        self._picture("stakes").show(lambda width, _, plain: self._stakes(width))
        if self._choosing:
            self._picture("choices").show(lambda width, _, plain: self._choices(width))
        else:
            self.dial.name_values(self._dial_words)
        self._show_seal()
        super().retell()

    def _picture(self, name: str) -> Picture:
        return self.query_one(f"#{name}", Picture)

    # What stands on the screen

    def _dial_words(self, value: float) -> str:
        return self.guess_words(value)

    def _choices(self, width: int) -> list[Line]:
        words = self.visit.text.choices
        lines: list[Line] = []
        for place, choice in enumerate(self.rule.choices):
            here = place == self.cursor
            head = f" {'>' if here else ' '} {LETTERS[place]}  "
            for row, text in enumerate(wrap(words.get(choice, choice), max(width - 6, 2))):
                lead = head if row == 0 else " " * len(head)
                lines.append((Run(lead, "bronze"), Run(text, "strong" if here else "text")))
        return lines

    def _stakes(self, width: int) -> list[Line]:
        if not self.attempt.scored:
            return paragraph(self.say("guess.known"), width, "dim")
        if self._choosing:
            words = self.say("guess.stakes.choice", right=-RIGHT_CHOICE, wrong=WRONG_CHOICE)
        else:
            words = self.say(
                "guess.stakes.dial",
                close=plain_number(self.rule.close),
                right=-CLOSE_DIAL,
                least=DIAL_LEAST,
                most=DIAL_MOST,
            )
        return paragraph(words, width, "dim")

    def _show_seal(self) -> None:
        ink: Ink = "dim"
        words = self.say(f"guess.{self._unsealed}")
        if self.entry:
            words, ink = self.say("guess.entry", entry=f"{self.entry}_"), "bronze"
        elif self.armed:
            shown = self.guess_words(self.value)
            words, ink = self.say("guess.armed", guess=shown), "danger"
        self._picture("seal").show(lambda width, _, plain: paragraph(words, width, ink))

    @property
    def _unsealed(self) -> str:
        """The text that says what to do next: choose first, then take up the seal."""
        step = "unsealed" if self.touched else "untouched"
        return f"{step}_choice" if self._choosing else step

    def _moved(self) -> None:
        """The instrument was moved: the hand is off the seal."""
        self.armed = False
        self.touched = True
        if self._choosing:
            self._picture("choices").refresh()
        else:
            self.update_pieces()
        self._show_seal()
        self.refresh_keys()

    def piece_frame(self) -> Frame:
        """What the needle shows, drawn as if it were so; nothing before the needle was moved."""
        frame = super().piece_frame()
        if self._choosing or not self.touched:
            return frame
        return replace(frame, supposed=self.dial.value)

    # Keys

    def action_turn(self, steps: int, fine: bool = False) -> None:
        self.entry = ""
        self.dial.turn(steps, fine)
        self._moved()

    def action_end(self, upper: int) -> None:
        self.entry = ""
        self.dial.set_value(self.rule.high if upper else self.rule.low)
        self._moved()

    def action_digit(self, sign: str) -> None:
        if len(self.entry) < 6 and not (sign == "." and "." in self.entry):
            self.entry += sign
        self._read_entry()
        self._moved()

    def action_erase(self) -> None:
        self.entry = self.entry[:-1]
        self._read_entry()
        self._moved()

    def _read_entry(self) -> None:
        """The needle follows what is typed, as far as the dial reaches."""
        if self.entry.strip(".") and float(self.entry) > 0:
            self.dial.set_value(float(self.entry))

    def action_move(self, steps: int) -> None:
        first = 0 if steps > 0 else -1
        place = first if self.cursor < 0 else self.cursor + steps
        self.cursor = place % len(self.rule.choices)
        self._moved()

    def action_pick(self, place: int) -> None:
        self.cursor = place
        self._moved()

    def action_go_on(self) -> None:
        self.entry = ""
        if not self.touched:
            return
        if not self.armed:
            self.armed = True
            self._show_seal()
            self.refresh_keys()
            return
        self.visit.seal(self.value)

    def action_back(self) -> None:
        if self.armed or self.entry:
            self.entry = ""
            self._moved()
        else:
            self.visit.leave()

    def on_click(self, event: events.Click) -> None:
        if self._choosing or event.widget is not self.dial:
            return
        from game.widgets.dial_face import Scale

        scale = Scale(self.rule.low, self.rule.high, max(self.dial.content_size.width, 2))
        self.entry = ""
        self.dial.set_value(float(f"{scale.value(event.x):.2g}"))
        self._moved()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        action = action.partition("(")[0]
        if action in _DIAL_ACTIONS:
            return not self._choosing
        if action in _CHOICE_ACTIONS:
            if (
                action == "pick"
                and parameters
                and int(str(parameters[0])) >= len(self.rule.choices)
            ):
                return False
            return self._choosing
        if action == "look_back" and self._choosing:
            # B is one of the answers here.
            return False
        return super().check_action(action, parameters)

    def key_words(self, binding_id: str) -> str | None:
        if binding_id == "go_on" and not self.touched:
            return None
        if binding_id == "go_on":
            return self.say("guess.key.seal_now" if self.armed else "guess.key.seal")
        if binding_id == "back":
            return self.say("guess.key.unarm" if self.armed or self.entry else "key.to_map")
        if binding_id == "turn":
            return self.say("guess.key.turn")
        return super().key_words(binding_id)
