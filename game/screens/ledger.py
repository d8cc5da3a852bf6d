"""The ledger: every record with its guess, its truth, its verdict, and what it did to the debt."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from engine.metrics import METRICS
from game.rules.standing import Entry
from game.screens.base import HallScreen
from game.widgets.cells import clip, pad, pad_left
from game.widgets.debt_curve import debt_curve
from game.widgets.ink import content
from game.widgets.record_detail import VERDICT_STYLE, local_time, record_detail, verdict_of
from saves.documents import GuessRecord, Record

WIDE = 128
"""From this width the chosen record lies open beside the list."""
CURVE_ROWS = 3
_DATE, _HALL, _WORD, _DEBT = 13, 16, 11, 9


class LedgerScreen(HallScreen[None]):
    """Newest first. Enter lays a record open on a page of its own."""

    DEFAULT_CSS: ClassVar[str] = """
    LedgerScreen #heading { height: 2; padding: 0 1; }
    LedgerScreen #curve { height: 4; padding: 0 1; color: $violet; }
    LedgerScreen #columns { height: 1; padding: 0 1; color: $faint; }
    LedgerScreen #book { height: 1fr; }
    LedgerScreen #list { width: 1fr; height: 1fr; }
    LedgerScreen OptionList { height: 1fr; border: none; padding: 0; background: $ink;
        scrollbar-size-vertical: 1; }
    LedgerScreen OptionList:focus { border: none; background-tint: $ink 0%; }
    LedgerScreen #open { display: none; width: 50; height: 1fr; padding: 0 1 0 2;
        scrollbar-size-vertical: 1; }
    LedgerScreen #open Static { width: 100%; height: auto; }
    LedgerScreen.-wide #open { display: block; }
    LedgerScreen #empty { height: 1fr; content-align: center middle; color: $mist;
        display: none; }
    LedgerScreen.-empty #empty { display: block; }
    LedgerScreen.-empty #book, LedgerScreen.-empty #curve, LedgerScreen.-empty #columns {
        display: none; }
    """
    AUTO_FOCUS: ClassVar[str | None] = "OptionList"
    HELP_KEY: ClassVar[str] = "ledger.help"

    def __init__(self) -> None:
        super().__init__()
        self._records: tuple[Record, ...] = ()
        self._entries: dict[str, Entry] = {}
        self._debts: tuple[int, ...] = (0,)

    def body(self) -> ComposeResult:
        yield Static(id="heading", markup=False)
        yield Static(id="curve", markup=False)
        with Horizontal(id="book"):
            with Vertical(id="list"):
                yield Static(id="columns", markup=False)
                yield OptionList(markup=False)
            with VerticalScroll(id="open", can_focus=False):
                yield Static(id="detail", markup=False)
        yield Static(id="empty", markup=False)

    def on_mount(self) -> None:
        entries = self.session.ledger()
        self._records = tuple(reversed(self.session.records()))
        self._entries = {entry.digest: entry for entry in entries}
        self._debts = (0, *(entry.debt_after for entry in entries))
        super().on_mount()

    def retell(self) -> None:
        self.set_class(not self._records, "-empty")
        self.set_class(self.size.width >= WIDE, "-wide")
        self._show_heading()
        self.query_one("#empty", Static).update(Content(self.say("ledger.empty")))
        self.query_one("#columns", Static).update(Content(self._row_of(self._column_names())))
        rows = self.query_one(OptionList)
        at = rows.highlighted or 0
        rows.clear_options()
        rows.add_options([Option(self._row(record)) for record in self._records])
        if self._records:
            rows.highlighted = min(at, len(self._records) - 1)
        self._show_open()
        super().retell()

    def _show_heading(self) -> None:
        debt = self._debts[-1]
        heading = Content.assemble(
            (self.say("ledger.heading"), "bold $bronze-bright"),
            "   ",
            (self.say("map.debt", debt=debt), "$violet" if debt else "$cyan-bright"),
            "   ",
            (self.say("ledger.most", debt=max(self._debts)), "$mist"),
        )
        self.query_one("#heading", Static).update(heading)
        columns = max(min(self.size.width - 4, 76), 10)
        curve = debt_curve(self._debts, columns, CURVE_ROWS, self.hall.plain_glyphs)
        self.query_one("#curve", Static).update(content(curve))

    def _column_names(self) -> tuple[str, str, str, str, str]:
        names = ("date", "hall", "guess_truth", "verdict", "debt")
        when, hall, guess, word, debt = (self.say(f"ledger.column.{name}") for name in names)
        return when, hall, guess, word, debt

    @property
    def _guess_cells(self) -> int:
        taken = _DATE + _HALL + _WORD + _DEBT + (50 if self.has_class("-wide") else 0)
        return min(max(self.size.width - taken - 4, 8), 40)

    def _row_of(self, columns: tuple[str, str, str, str, str]) -> str:
        when, hall, guess, word, debt = columns
        return (
            pad(when, _DATE)
            + pad(hall, _HALL)
            + pad(guess, self._guess_cells)
            + pad(word, _WORD)
            + pad_left(debt, _DEBT)
        )

    def _row(self, record: Record) -> Content:
        entry = self._entries.get(record.digest)
        word = str(record.verdict.get("word", "invalid"))
        change = entry.debt_after - entry.debt_before if entry else 0
        owed = "$violet" if change > 0 else "$cyan-bright"
        return Content.assemble(
            " ",
            (pad(local_time(record.recorded_at, "%m-%d %H:%M"), _DATE), "$mist"),
            (pad(clip(self._hall_name(record.stage), _HALL - 1), _HALL), "$silver"),
            (pad(clip(self._guess(record), self._guess_cells - 1), self._guess_cells), "$silver"),
            (pad(self._word(record, word), _WORD), VERDICT_STYLE.get(word, "$silver")),
            (pad_left(f"{change:+d}" if change else "-", _DEBT), owed if change else "$faint"),
        )

    def _word(self, record: Record, word: str) -> str:
        """The verdict in one word; a fall is told as one."""
        verdict = verdict_of(record)
        fell = word == "fail" and verdict is not None and verdict.fallen
        return self.say("ledger.word.fell" if fell else f"map.word.{word}")

    def _hall_name(self, stage_id: str) -> str:
        """A record of a hall this game does not have keeps the id it came with."""
        if stage_id in {stage.id for stage in self.session.stages}:
            return self.session.stage_text(stage_id).name
        return clip(stage_id, _HALL - 1)

    def _guess(self, record: Record) -> str:
        guess = record.guess
        if guess is None:
            return self.say("ledger.practice")
        truth = self._shown(record.stage, guess.truth)
        return f"{self._shown(record.stage, guess.value)} / {truth}{self._closeness(guess)}"

    def _closeness(self, guess: GuessRecord) -> str:
        if guess.close is None:
            return ""
        return "  " + self.say("ledger.close" if guess.close else "ledger.far")

    def _shown(self, stage_id: str, value: float | str | None) -> str:
        stage = next((one for one in self.session.stages if one.id == stage_id), None)
        if stage is None:
            return "-" if value is None else str(value)
        shown = self.session.show_guess(stage_id, value)
        if stage.guess is None or isinstance(value, str) or value is None:
            return shown
        metric = METRICS[stage.guess.metric]
        # A ratio is read as it stands; megabytes and percent say what they are.
        return shown if metric.kind == "ratio" else f"{shown} {metric.unit}"

    @property
    def _chosen(self) -> Record | None:
        at = self.query_one(OptionList).highlighted
        return self._records[at] if at is not None and at < len(self._records) else None

    def _show_open(self) -> None:
        record = self._chosen
        if record is not None and self.has_class("-wide"):
            self.query_one("#detail", Static).update(self.detail(record, 46))

    def detail(self, record: Record, width: int) -> Content:
        entry = self._entries.get(record.digest)
        hall = self._hall_name(record.stage)
        return record_detail(self.say, self._shown, hall, record, entry, width)

    def on_resize(self, event: events.Resize) -> None:
        super().on_resize(event)
        if self.told:
            self.retell()

    def key_words(self, binding_id: str) -> str | None:
        if binding_id == "go_on":
            return self.say("ledger.lay_open") if self._records else None
        return None if binding_id == "ledger" else super().key_words(binding_id)

    @on(OptionList.OptionHighlighted)
    def _moved(self) -> None:
        self._show_open()

    @on(OptionList.OptionSelected)
    def _selected(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        self.action_go_on()

    def action_go_on(self) -> None:
        record = self._chosen
        if record is not None:
            self.app.push_screen(RecordScreen(self, record))

    def action_ledger(self) -> None:
        self.app.pop_screen()

    def action_back(self) -> None:
        self.app.pop_screen()


class RecordScreen(HallScreen[None]):
    """One record on a page of its own; the arrows scroll."""

    DEFAULT_CSS: ClassVar[str] = """
    RecordScreen VerticalScroll { height: 1fr; padding: 0 1; scrollbar-size-vertical: 1; }
    RecordScreen #detail { width: 100%; height: auto; }
    """
    AUTO_FOCUS: ClassVar[str | None] = "VerticalScroll"
    HELP_KEY: ClassVar[str] = "ledger.help"

    def __init__(self, ledger: LedgerScreen, record: Record) -> None:
        super().__init__()
        self._ledger, self._record = ledger, record

    def body(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="detail", markup=False)

    def retell(self) -> None:
        width = min(max(self.size.width - 6, 30), 90)
        self.query_one("#detail", Static).update(self._ledger.detail(self._record, width))
        super().retell()

    def key_words(self, binding_id: str) -> str | None:
        return None if binding_id == "ledger" else super().key_words(binding_id)

    def action_ledger(self) -> None:
        self.app.pop_screen()

    def action_back(self) -> None:
        self.app.pop_screen()
