"""The verdict: one word and its reason, then every figure behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll

from engine.trial import Flood, TrialResult
from game.outcome import Outcome
from game.rules.verdict import FALLEN
from game.screens.cliff_words import babble_lines
from game.screens.crown_words import crown_lines
from game.screens.flood_words import flood_figures
from game.screens.goal_words import goal_rows
from game.screens.hall_screen import InHallScreen
from game.screens.trial_log import badge
from game.screens.verdict_details import draw_details
from game.widgets.cells import wrap
from game.widgets.dial import Dial
from game.widgets.drawn import Picture
from game.widgets.figures import share, times
from game.widgets.hall_piece import HallPiece
from game.widgets.ink import Ink, Line, Run
from game.widgets.price_panel import flow
from game.widgets.typesetting import paragraph
from game.wording import bound_words, remark_words

if TYPE_CHECKING:
    from game.play import StageRun

_PIECE_ROWS = 32
_BARE_PIECE_ROWS = 20
_DIAL_ROWS = 28
_BABBLE_ROWS = 2
"""Lines of each text of a fall where the screen is low; twice as many where it is not."""


class VerdictScreen(InHallScreen):
    """Shows the last trial of the visit; `D` opens what lies beneath the figures."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t,T", "tune", id="tune"),
        Binding("d,D", "details", id="details"),
        Binding("up,k", "scroll(-1)", id="history_scroll"),
        Binding("down,j", "scroll(1)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("pagedown,space", "scroll(10)", show=False),
        Binding("home", "scroll(-9999)", show=False),
        Binding("end", "scroll(9999)", show=False),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    VerdictScreen HallPiece { height: 1fr; }
    VerdictScreen Picture { padding: 0 2; }
    VerdictScreen #word { margin-top: 1; }
    VerdictScreen #goals { margin-top: 1; }
    VerdictScreen.-short #word, VerdictScreen.-short #rest, VerdictScreen.-short #ledger {
        margin-top: 0;
    }
    VerdictScreen.-short Dial { margin: 0 2; }
    VerdictScreen.-told Dial { display: none; }
    VerdictScreen #goals.-empty { display: none; }
    VerdictScreen #rest { margin-top: 1; }
    VerdictScreen Dial { margin: 1 2 0 2; }
    VerdictScreen #ledger { margin-top: 1; }
    VerdictScreen #beneath { height: 1fr; margin-top: 1; display: none;
        scrollbar-size-vertical: 1; }
    VerdictScreen.-details #goals, VerdictScreen.-details #rest, VerdictScreen.-details Dial,
    VerdictScreen.-details #ledger, VerdictScreen.-details HallPiece { display: none; }
    VerdictScreen.-details #beneath { display: block; }
    VerdictScreen.-piece #goals, VerdictScreen.-piece #rest, VerdictScreen.-piece Dial,
    VerdictScreen.-piece #ledger { display: none; }
    """
    HELP_KEY: ClassVar[str] = "help.play.verdict"

    def __init__(self, visit: StageRun) -> None:
        super().__init__(visit)
        outcome = visit.attempt.outcome
        assert outcome is not None
        self.outcome: Outcome = outcome

    def body(self) -> ComposeResult:
        yield self.make_piece()
        yield Picture(self._draw_word, id="word")
        yield Picture(self._draw_goals, id="goals")
        yield Picture(self._draw_rest, id="rest")
        rule = self.attempt.stage.guess
        guess = self.outcome.guess
        if rule is not None and rule.kind == "dial" and guess is not None:
            dial = Dial(rule.low, rule.high, rule.close)
            dial.set_value(float(guess.value))
            yield dial
        yield Picture(self._draw_ledger, id="ledger")
        with VerticalScroll(id="beneath", can_focus=False):
            yield Picture(self._draw_details, id="details")

    def on_mount(self) -> None:
        guess = self.outcome.guess
        if guess is not None and isinstance(guess.truth, float):
            for dial in self.query(Dial):
                dial.reveal(guess.truth, moving=not self.reduced_motion)

    def retell(self) -> None:
        for picture in self.query(Picture):
            if picture.id in ("word", "goals", "rest", "ledger", "details"):
                picture.refresh(layout=True)
        guess = self.outcome.guess
        truth = guess.truth if guess is not None else None
        for dial in self.query(Dial):
            words = "" if truth is None else self.guess_words(truth)
            dial.name_values(
                lambda value: self.say("verdict.guess", guess=self.guess_words(value)),
                self.say("verdict.truth", truth=words) if words else "",
            )
        self._arrange()
        super().retell()

    def _arrange(self) -> None:
        """The set piece stands above where there is room; else it is one key away."""
        self.query_one("#goals", Picture).set_class(not self.outcome.verdict.goals, "-empty")
        # A broken vessel has more to tell: where lines are few, the sealed guess is told in words.
        broke = self.outcome.verdict.flooded or self.outcome.verdict.fallen
        self.set_class(broke and self.app.size.height < _DIAL_ROWS, "-told")
        for piece in self.query(HallPiece):
            piece.display = (
                self._room_for_piece or self.has_class("-piece")
            ) and not self.has_class("-details")

    @property
    def _room_for_piece(self) -> bool:
        needed = _PIECE_ROWS if self.outcome.verdict.goals else _BARE_PIECE_ROWS
        return self.app.size.height >= needed and self.outcome.result is not None

    # What stands on the screen

    def _draw_word(self, width: int, rows: int, plain: bool) -> list[Line]:
        verdict = self.outcome.verdict
        word = badge(self.say, verdict.word)
        # Of a fall the goals beneath tell the rest; what is quoted of it needs the room.
        told_here = [one for one in verdict.reasons if not verdict.fallen or one.code == FALLEN]
        reasons = " ".join(remark_words(self.say, reason) for reason in told_here)
        indent = cell_len(word.text) + 2
        told = wrap(reasons, max(width - indent, 10)) or [""]
        lines: list[Line] = [(word, Run("  " + told[0], "strong"))]
        lines += [(Run(" " * indent + more, "strong"),) for more in told[1:]]
        for advice in verdict.advice:
            lines += paragraph(remark_words(self.say, advice), width, "dim")
        return lines

    def _draw_goals(self, width: int, rows: int, plain: bool) -> list[Line]:
        return goal_rows(self.say, self.outcome.verdict, width, plain)

    def _draw_rest(self, width: int, rows: int, plain: bool) -> list[Line]:
        """What bound the run and the one number that says so; the crowns."""
        verdict, result = self.outcome.verdict, self.outcome.result
        lines: list[Line] = []
        if result is not None and result.flood is not None:
            return self._draw_flood(result.flood, width)
        if result is not None and verdict.fallen:
            return self._draw_fall(result, width)
        if verdict.bound_by != "none":
            # Capacity and quality have no ceiling in seconds, and so no share of one.
            key = "verdict.bound_by" if verdict.bound_share else "verdict.bound_by_bare"
            words = self.say(
                key,
                bound=bound_words(self.say, verdict.bound_by),
                share=share(verdict.bound_share),
            )
            lines += paragraph(words, width, "text")
        if verdict.word == "pass" and self.attempt.stage.crowns:
            lines += crown_lines(self.say, self.attempt.stage, self.outcome, width)
        return lines

    def _draw_flood(self, flood: Flood, width: int) -> list[Line]:
        """What bound the run was the vessel: its account, and that the scar stays."""
        bound = self.say(
            "verdict.bound_by_bare", bound=bound_words(self.say, self.outcome.verdict.bound_by)
        )
        lines = flow([Run(bound, "text"), *flood_figures(self.say, flood)], width)
        if self._left_the_scar:
            lines += paragraph(self.say("verdict.scar"), width, "danger")
        return lines

    def _draw_fall(self, result: TrialResult, width: int) -> list[Line]:
        """What is left of the model, in its own words, and that the scar keeps them."""
        rows = _BABBLE_ROWS if self.app.size.height < _PIECE_ROWS else 2 * _BABBLE_ROWS
        answers = result.quality.answers if result.quality is not None else ()
        lines = babble_lines(self.say, answers, width, rows)
        if self._left_the_scar:
            lines += paragraph(self.say("verdict.scar.cliff"), width, "danger")
        return lines

    @property
    def _left_the_scar(self) -> bool:
        """Whether this trial's record is the scar that its hall demanded."""
        record = self.outcome.record
        scar = self.session.standing().halls[self.attempt.stage.id].scar
        return record is not None and record.digest == scar

    def _draw_ledger(self, width: int, rows: int, plain: bool) -> list[Line]:
        """The guess against the truth, and what the ledger made of it."""
        outcome, guess = self.outcome, self.outcome.guess
        lines: list[Line] = []
        told_by_dial = self.short and bool(self.query(Dial)) and not self.has_class("-told")
        if guess is not None and guess.truth is not None and not told_by_dial:
            key = "verdict.guess_right" if guess.close else "verdict.guess_wrong"
            if guess.close is None:
                key = "verdict.guess_known"
            elif isinstance(guess.value, float):
                key = "verdict.guess_off"
            words = self.say(
                key,
                guess=self.guess_words(guess.value),
                truth=self.guess_words(guess.truth),
                factor=times(guess.factor or 1.0),
            )
            lines += paragraph(words, width, "text")
        change = outcome.debt_after - outcome.debt_before
        words = self.say("verdict.debt", before=outcome.debt_before, after=outcome.debt_after)
        charges = "  ".join(
            f"{charge.amount:+d} {self.say(f'charge.{charge.code}')}" for charge in outcome.charges
        )
        ink: Ink = "danger" if change > 0 else "wall" if change < 0 else "dim"
        if cell_len(words) + cell_len(charges) + 3 <= width:
            lines.append((Run(words, ink), Run(f"   {charges}" if charges else "", "dim")))
        else:
            lines += [(Run(words, ink),), *paragraph(charges, width, "dim")]
        if outcome.warning:
            lines += paragraph(outcome.warning, width, "danger")
        return lines

    def _draw_details(self, width: int, rows: int, plain: bool) -> list[Line]:
        return draw_details(self.say, self.outcome, width, plain)

    # Keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        action = action.partition("(")[0]
        if action == "turn_view":
            return self.outcome.result is not None and (
                not self._room_for_piece or bool(super().check_action(action, parameters))
            )
        if action == "scroll":
            return self.has_class("-details")
        return super().check_action(action, parameters)

    def action_turn_view(self) -> None:
        """Where the set piece has no room of its own: figures, its first view, its second."""
        self.remove_class("-details")
        if self._room_for_piece:
            super().action_turn_view()
        elif not self.has_class("-piece"):
            self.add_class("-piece")
        else:
            piece = self.query_one(HallPiece)
            if piece.two_views and piece.view == "first":
                piece.turn_view()
            else:
                self.remove_class("-piece")
                if piece.view == "second":
                    piece.turn_view()
        self._arrange()

    def action_details(self) -> None:
        self.remove_class("-piece")
        self.toggle_class("-details")
        self.query_one("#beneath", VerticalScroll).scroll_home(animate=False)
        self._arrange()
        self.refresh_keys()

    def action_back(self) -> None:
        """From the details to the verdict, from the verdict to the map."""
        if self.has_class("-details"):
            self.action_details()
        else:
            super().action_back()

    def action_scroll(self, rows: int) -> None:
        self.query_one("#beneath", VerticalScroll).scroll_relative(y=rows, animate=False)

    def action_go_on(self) -> None:
        self.visit.after_verdict()

    def action_tune(self) -> None:
        self.visit.tune_again()

    def action_hint(self) -> None:
        from game.screens.hint import HintScreen

        self.app.push_screen(HintScreen(self.visit))

    def key_words(self, binding_id: str) -> str | None:
        if binding_id == "go_on":
            return self.say("verdict.key.insight" if self.attempt.complete else "key.go_on")
        if binding_id == "back":
            return self.say("key.back" if self.has_class("-details") else "key.to_map")
        return super().key_words(binding_id)
