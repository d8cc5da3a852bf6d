"""The forge: the knobs of the hall, what they will cost by formula, and what the goals ask."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from engine.clean import clean
from engine.domains import Value
from engine.knobs import KNOBS
from engine.resolve import Resolved
from game.screens.draft_notes import draft_notes
from game.screens.forge_goals import forge_goals
from game.screens.forge_knobs import FEW_KNOBS, knob_rows, ladder_with
from game.screens.forge_notes import forge_notes, note_lines
from game.screens.forge_price import draw_price, draw_weights
from game.screens.forge_roof import forge_roof
from game.screens.hall_screen import InHallScreen
from game.screens.trial_log import record_lines
from game.widgets.cells import pad, pad_left
from game.widgets.drawn import Picture
from game.widgets.hall_piece import Frame
from game.widgets.ink import Line, Run
from game.widgets.knob_row import KnobRow, Stop, draw_knob, draw_knob_line
from game.widgets.typesetting import paragraph

if TYPE_CHECKING:
    from engine.price import Price
    from game.play import StageRun
    from story.schema import Stage

_PAST_ROWS = 12
_WIDE_COLUMNS, _TALL_ROWS, _SIDE_COLUMNS = 100, 34, 150
_FULL_ROWS = 32
"""Below it a hall with a vessel, or with many knobs, tells each phase's least time and leaves its
limits away."""
_NOTE_ROWS = 3


class ForgeScreen(InHallScreen):
    """Up and down choose a knob, left and right turn it; the price follows every turn."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "choose(-1)", id="choose", key_display="Up/Dn"),
        Binding("down,j", "choose(1)", show=False),
        Binding("left", "turn(-1)", id="turn", key_display="<>"),
        Binding("right", "turn(1)", show=False),
        Binding("r,R", "reset", id="reset"),
    ]
    DEFAULT_CSS: ClassVar[str] = """
    ForgeScreen #title { padding: 0 2; height: 1; }
    ForgeScreen #bench { height: auto; margin-top: 1; }
    ForgeScreen #left { width: 1fr; height: auto; padding: 0 1 0 1; }
    ForgeScreen #right { width: 1fr; height: auto; padding: 0 2 0 1; }
    ForgeScreen #goals { padding: 0 2; margin-top: 1; height: auto; }
    ForgeScreen #message { padding: 0 2; height: auto; margin-top: 1; }
    ForgeScreen #roof { height: 1fr; padding: 0 2; margin-top: 1; display: none; }
    ForgeScreen HallPiece { height: 1fr; margin-top: 1; display: none; }
    ForgeScreen.-roomy #roof, ForgeScreen.-roomy HallPiece { display: block; }
    ForgeScreen #notes { padding: 0 2; height: auto; display: none; }
    ForgeScreen.-weights #notes { display: block; margin-top: 1; }
    ForgeScreen.-short #bench, ForgeScreen.-short #message { margin-top: 0; }
    ForgeScreen.-close #bench, ForgeScreen.-close #message, ForgeScreen.-close #notes {
        margin-top: 0;
    }
    ForgeScreen #past { width: 1fr; padding: 0 2; display: none; }
    ForgeScreen.-wide #past { display: block; }
    """
    HELP_KEY: ClassVar[str] = "help.play.forge"
    SETTLE_SECONDS: ClassVar[float] = 0.6
    """Enter read the lines before this screen: the next few of a fast hand's must not start a
    trial. One that comes after a pause this long does."""

    def __init__(self, visit: StageRun, trouble: str = "") -> None:
        super().__init__(visit)
        self._last_enter = monotonic()
        self.cursor = 0
        self.trouble = trouble

    @property
    def stage(self) -> Stage:
        return self.attempt.stage

    @property
    def ladder_of(self) -> dict[str, tuple[Value, ...]]:
        """Each knob's stops; a position off the ladder (a hint's) has a stop of its own."""
        return {name: ladder_with(name, self._value(name)) for name in self.stage.knobs}

    def _value(self, name: str) -> Value:
        return self.attempt.build.get(name, KNOBS[name].default)

    def body(self) -> ComposeResult:
        yield Picture(id="title")
        with Horizontal(id="bench"):
            with Vertical(id="left"):
                yield Picture(self._draw_knobs, id="knobs")
            with Vertical(id="right"):
                yield Picture(self._draw_price, id="price")
            yield Picture(self._draw_past, id="past")
        yield Picture(self._draw_notes, id="notes")
        yield Picture(self._draw_goals, id="goals")
        yield Picture(self._draw_message, id="message")
        if self._has_vessel:
            yield self.make_piece()
        else:
            yield Picture(id="roof")

    @property
    def _has_vessel(self) -> bool:
        """In a hall with a memory budget the set piece shows where this build would stand."""
        return bool(self.stage.build.get("memory.budget"))

    def piece_frame(self) -> Frame:
        """By formula alone: what was measured of another build says nothing of this one."""
        return Frame(debt=self.session.standing().debt, prices=self.prices())

    def retell(self) -> None:
        self.query_one("#title", Picture).show(lambda width, _, plain: self._draw_title(width))
        self._redraw()
        super().retell()

    def _redraw(self) -> None:
        size = self.app.size
        self.set_class(
            size.height >= _TALL_ROWS and size.width >= _WIDE_COLUMNS and self._can_draw_roof,
            "-roomy",
        )
        self.set_class(size.width >= _SIDE_COLUMNS, "-wide")
        self.set_class(self._has_weights, "-weights")
        self.set_class(self._many and size.height < _FULL_ROWS, "-close")
        for name in ("knobs", "price", "past", "notes", "goals", "message"):
            self.query_one(f"#{name}", Picture).refresh(layout=True)
        if self.has_class("-roomy") and not self._has_vessel:
            self.query_one("#roof", Picture).show(self._draw_roof)

    # Legality and price

    @property
    def price(self) -> Price | None:
        return self.session.price(self.stage.id, self.attempt.build)

    @property
    def illegal(self) -> str:
        """Why this build cannot run, with the nearest that can; "" where it can, or who knows."""
        answer = self.session.check(self.stage.id, self.attempt.build)
        return clean(answer, one_line=True) if isinstance(answer, str) else ""

    # What stands on the screen

    def _draw_title(self, width: int) -> list[Line]:
        left = f"{self.visit.text.name}  {self.say('forge.title')}"
        room = max(width - cell_len(left) - 2, 8)
        guess = self.attempt.guess
        sealed = "" if guess is None else self.guess_words(guess)
        right = self.say("forge.sealed", guess=sealed)
        return [(Run(pad(left, width - room), "bronze"), Run(pad_left(right, room), "dim"))]

    def _draw_knobs(self, width: int, rows: int, plain: bool) -> list[Line]:
        lines: list[Line] = []
        names = max((cell_len(self.say(f"knob.{name}")) for name in self.stage.knobs), default=0)
        for number, name in enumerate(self.stage.knobs):
            if number and self._knob_rows == 3:
                lines.append(())
            row = self._row(number, name)
            lines += (
                draw_knob_line(row, names, width) if self._knob_rows == 1 else draw_knob(row, width)
            )
        return lines

    @property
    def _knob_rows(self) -> int:
        return knob_rows(len(self.stage.knobs), self.app.size.height, self.short)

    @property
    def _many(self) -> bool:
        return len(self.stage.knobs) > FEW_KNOBS

    @property
    def _has_weights(self) -> bool:
        """In a hall whose knobs are the weights' widths the price says what becomes of them."""
        return any(name.startswith("weights.") for name in self.stage.knobs)

    def _row(self, number: int, name: str) -> KnobRow:
        ladder = self.ladder_of[name]
        stops = [
            Stop(self.knob_words(name, value), self._barred(name, value) is not None)
            for value in ladder
        ]
        unit = self.say(f"knob.{name}")
        return KnobRow(
            name=unit,
            cost=self.say(f"forge.cost.{KNOBS[name].cost}"),
            stops=stops,
            place=ladder.index(self._value(name)),
            chosen=number == self.cursor,
        )

    def _barred(self, name: str, value: Value) -> str | None:
        session = self.session
        if name == "draft.kind" and session.model_config is not None:
            return session.drafters.why_not(str(value))
        return KNOBS[name].unavailable(value, session.capabilities, session.model_config)

    def _draw_price(self, width: int, rows: int, plain: bool) -> list[Line]:
        price = self.price
        if price is None:
            key = "forge.price.illegal" if self.illegal else "forge.price.unknown"
            return paragraph(self.say(key), width, "dim")
        machine = self.session.machine
        low = self.app.size.height < _FULL_ROWS
        lines = draw_price(
            self.say,
            self.stage,
            price,
            self._reference_bytes(),
            machine.ceilings if machine is not None else None,
            width,
            plain,
            brief=self.short or (low and (price.vessel is not None or self._many)),
        )
        model, outcome = self.session.model_config, self.attempt.outcome
        if self._has_weights and model is not None:
            last = outcome.result if outcome is not None else None
            lines += draw_weights(self.say, price, model, last, width)
        return lines

    def _draw_notes(self, width: int, rows: int, plain: bool) -> list[Line]:
        checked = self.session.check(self.stage.id, self.attempt.build)
        model, machine = self.session.model_config, self.session.capabilities
        if model is None or machine is None or not isinstance(checked, Resolved):
            return []
        forms = machine.low_bit_forms.get(checked.config.run.precision, ())
        knob = self.stage.knobs[self.cursor]
        notes = []
        if self._has_weights:
            notes += forge_notes(self.say, checked.config, model, forms, knob)
        if any(name.startswith("draft.") for name in self.stage.knobs):
            drafters = self.session.drafters
            notes += draft_notes(self.say, checked.config, model, drafters, forms, knob)
        most = _NOTE_ROWS if self.app.size.height < _FULL_ROWS else 2 * _NOTE_ROWS
        return note_lines(notes, width, most)

    def _reference_bytes(self) -> float:
        compared = self.stage.reference_to(self.attempt.build)
        reference = {name: value for name, value in compared.items() if name in self.stage.knobs}
        price = self.session.price(self.stage.id, reference)
        return float(price.total) if price is not None else 0.0

    def _draw_goals(self, width: int, rows: int, plain: bool) -> list[Line]:
        outcome = self.attempt.outcome
        verdict = outcome.verdict if outcome is not None else None
        descending = self.attempt.descending
        return forge_goals(self.say, self.stage, verdict, descending, width, plain)

    def _draw_past(self, width: int, rows: int, plain: bool) -> list[Line]:
        """The hall's trials on record, beside the price where there is room for a third column."""
        records = self.session.records()
        lines = record_lines(self.say, self.knob_words, self.stage, records, _PAST_ROWS)
        if not lines:
            return paragraph(self.say("forge.past.none"), width, "dim")
        return [(Run(self.say("forge.past"), "bronze"),), *lines]

    def _draw_message(self, width: int, rows: int, plain: bool) -> list[Line]:
        if self.trouble:
            return paragraph(self.trouble, width, "danger")
        if self.illegal:
            return paragraph(self.say("forge.illegal", why=self.illegal), width, "danger")
        if not self.stage.knobs:
            return []
        name = self.stage.knobs[self.cursor]
        barred = self._barred(name, self._value(name))
        if barred:
            return paragraph(clean(barred, one_line=True), width, "danger")
        about = self.say(f"knob.{name}.about")
        if self._knob_rows == 1:  # a line of its own has no room for what turning costs
            cost = self.say(f"forge.cost.{KNOBS[name].cost}")
            about = self.say("forge.turns", cost=cost, about=about)
        return paragraph(about, width, "dim")

    @property
    def _can_draw_roof(self) -> bool:
        return self.session.machine is not None and self.price is not None

    def _draw_roof(self, width: int, rows: int, plain: bool) -> list[Line]:
        machine, price = self.session.machine, self.price
        if machine is None or price is None or rows < 8:
            return []
        outcome = self.attempt.outcome
        last = outcome.result if outcome is not None else None
        return forge_roof(self.say, machine.ceilings, price, last, width, rows, plain)

    # Keys

    def action_choose(self, steps: int) -> None:
        self.cursor = (self.cursor + steps) % max(len(self.stage.knobs), 1)
        self._moved()

    def action_turn(self, steps: int) -> None:
        name = self.stage.knobs[self.cursor]
        ladder = self.ladder_of[name]
        place = min(max(ladder.index(self._value(name)) + steps, 0), len(ladder) - 1)
        self.attempt.turn(name, ladder[place])
        self._moved()

    def action_reset(self) -> None:
        self.attempt.reset()
        self._moved()

    def _moved(self) -> None:
        self.trouble = ""
        self._redraw()
        self.update_pieces()

    def action_go_on(self) -> None:
        since, self._last_enter = monotonic() - self._last_enter, monotonic()
        if since < self.SETTLE_SECONDS:
            return
        if self.illegal:
            self._redraw()
            return
        self.visit.begin_trial()

    def action_hint(self) -> None:
        from game.screens.hint import HintScreen

        self.app.push_screen(HintScreen(self.visit))

    def on_screen_resume(self) -> None:
        if self.is_mounted:
            self._redraw()

    def key_words(self, binding_id: str) -> str | None:
        if binding_id == "go_on":
            return self.say("forge.key.begin")
        if binding_id == "back":
            return self.say("key.to_map")
        if binding_id == "turn":
            return self.say("forge.key.turn")
        return super().key_words(binding_id)
