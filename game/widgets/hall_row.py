"""One hall on the map: its name, its state, its crowns, its best figure, the debt earned there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from game.rules.standing import HallState
from game.widgets.cells import pad, pad_left

NAME_CELLS, STATE_CELLS, BEST_CELLS, DEBT_CELLS = 21, 7, 15, 5


@dataclass(frozen=True)
class Crown:
    """`won` is None where the hall does not offer this crown: its place stays empty."""

    word: str
    won: bool | None


@dataclass(frozen=True)
class HallView:
    """A hall in words. `note` says of a closed hall what opens it; then the rest is empty. `scar`
    is the word for the failure that the hall demanded, once it is on record, `scar_words` what it
    was."""

    stage: str
    name: str
    state: HallState
    state_word: str
    crowns: tuple[Crown, ...] = ()
    best: str = ""
    scar: str = ""
    scar_words: str = ""
    debt: str = ""
    note: str = ""


@dataclass(frozen=True)
class Marks:
    """The signs of a map: the place where one stands, and a hall's state."""

    here: str
    passed: str
    open: str
    sealed: str
    missing: str

    def of(self, state: HallState) -> str:
        return {"passed": self.passed, "open": self.open, "sealed": self.sealed}[state]


LIT_MARKS = Marks(here="▸", passed="•", open="◦", sealed=".", missing="-")
ASCII_MARKS = Marks(here=">", passed="*", open="o", sealed=".", missing="-")


def crowns_text(view: HallView, marks: Marks) -> Content:
    """Each crown in its own place: its word where it was won, a dash where it was not."""
    parts = []
    for crown in view.crowns:
        width = cell_len(crown.word)
        sign = "" if crown.won is None else marks.missing
        word = crown.word if crown.won else set_cell_size(sign, width)
        parts.append(Content.styled(word, "$bronze-bright" if crown.won else "$faint"))
    return Content(" ").join(parts)


def row_text(view: HallView, marks: Marks, chosen: bool, width: int, two_lines: bool) -> Content:
    """One line of `width` cells, or two where there is room for air."""
    closed = view.state == "sealed"
    name_style = "bold $bronze-bright" if chosen else ("$faint" if closed else "$silver")
    state_style = {"passed": "$cyan-bright", "open": "$bronze", "sealed": "$faint"}[view.state]
    head = Content.assemble(
        (f"{marks.here if chosen else ' '} ", "bold $bronze-bright"),
        (f"{marks.of(view.state)} ", state_style),
        (pad(view.name, NAME_CELLS), name_style),
        (pad(view.state_word, STATE_CELLS), state_style),
    )
    tail = Content.styled(view.note, "$faint") if closed else _achieved(view, marks, not two_lines)
    if two_lines:
        head += Content.styled(pad_left(view.debt, 10), "$violet")
        indent = Content("    ")
        return Content("\n").join([head, indent + tail]) if tail else head
    line = head + tail
    return line.truncate(width) if line.cell_length > width else line


def _achieved(view: HallView, marks: Marks, aligned: bool) -> Content:
    crowns = crowns_text(view, marks)
    if not aligned and all(crown.won is None for crown in view.crowns):
        crowns = Content("")
    # The scar stands right of the best figure, in the colour of what was broken.
    scar = f" {view.scar}" if view.scar else ""
    best = pad(view.best, BEST_CELLS - cell_len(scar))
    return Content.assemble(
        crowns,
        " " if crowns else "",
        (best, "$silver"),
        (scar, "$violet"),
        (pad_left(view.debt, DEBT_CELLS) if aligned else "", "$violet"),
    )


class HallRow(Widget):
    """Shows one hall; a click chooses it, a click on the chosen one walks in."""

    DEFAULT_CSS: ClassVar[str] = """
    HallRow { height: 1; width: 100%; background: $ink; }
    HallRow.-chosen { background: $ink-raised; }
    """

    class Chosen(Message):
        def __init__(self, stage: str) -> None:
            self.stage = stage
            super().__init__()

    def __init__(self, stage: str) -> None:
        super().__init__()
        self.stage = stage
        self._view: HallView | None = None
        self._marks = LIT_MARKS
        self._chosen = False
        self._two_lines = False
        self._rows = 0

    def show(self, view: HallView, marks: Marks, chosen: bool, rows: int) -> None:
        """`rows` the hall has to itself: two are written in where there is more than one."""
        before = (self._view, self._marks, self._chosen, self._rows)
        if before == (view, marks, chosen, rows):
            return
        self._view, self._marks, self._chosen, self._rows = view, marks, chosen, rows
        self._two_lines = rows > 1
        self.styles.height = 2 if self._two_lines else 1
        self.styles.margin = (0, 0, rows - 2, 0) if self._two_lines else 0
        self.set_class(chosen, "-chosen")
        self.refresh()

    def render(self) -> Content:
        if self._view is None:
            return Content("")
        width = self.content_size.width
        return row_text(self._view, self._marks, self._chosen, width, self._two_lines)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Chosen(self.stage))
