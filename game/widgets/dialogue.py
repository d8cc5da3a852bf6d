"""The box in which the hall speaks: the speaker in its border, the text at the reader's speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.timer import Timer

from game.widgets.cells import wrap
from game.widgets.drawn import Drawn
from game.widgets.ink import Ink, Line, Run
from game.widgets.typesetting import Page, Typing, pages
from story.schema import Speaker

TICK_SECONDS = 1 / 30
VOICE: dict[Speaker, Ink] = {
    "narrator": "dim",
    "elder": "text",
    "wall": "wall",
    "player": "bronze",
}
_WAITING, _WAITING_PLAIN = "⠙⠋", "v"
INDENT = 2


class Dialogue(Drawn):
    """Shows one line at a time. Choices stand under the text once it is complete.

    Text is set on pages before it is typed; `advance` completes a page, then turns it.
    """

    DEFAULT_CSS: ClassVar[str] = """
    Dialogue {
        height: 9; width: 1fr; padding: 0 1; border: round $bronze-dim;
        border-title-color: $bronze-bright; border-title-style: bold;
        border-subtitle-color: $mist;
    }
    Dialogue.-wall { border: round $cyan-dim; border-title-color: $cyan-bright; }
    Dialogue.-narrator { border: round $border-blurred; }
    Dialogue.-ascii { border: ascii $bronze-dim; }
    Dialogue.-ascii.-wall { border: ascii $cyan-dim; }
    """

    class Completed(Message):
        """All of the page stands on the screen; of the last page, with the choices."""

    class Chosen(Message):
        """A reply was picked with the mouse or a digit."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.who: Speaker = "narrator"
        self.text = ""
        self.replies: Sequence[str] = ()
        self.cursor = 0
        self.speed = 0
        self._typing = Typing()
        self._set_for = (0, 0)
        self._said = -1
        self._fresh = True
        self._timer: Timer | None = None

    # What it says

    def say(
        self,
        who: Speaker,
        name: str,
        text: str,
        replies: Sequence[str] = (),
        speed: int = 0,
        again: bool = False,
    ) -> None:
        """A new line; or `again`, the same one told in another language, as far as it was."""
        self.who, self.text, self.replies, self.speed = who, text, tuple(replies), speed
        self.border_title = Content(name) if name else None
        for voice in ("narrator", "elder", "wall", "player"):
            self.set_class(voice == who, f"-{voice}")
        if not again:
            self.cursor = 0
            self._typing = Typing()
            self._said = -1
            self._fresh = True
        self._set_for = (0, 0)
        self._set()
        self.refresh()

    def on_mount(self) -> None:
        self.set_class(self.plain_glyphs, "-ascii")
        self._timer = self.set_interval(TICK_SECONDS, self.tick, pause=True)
        self._wind()

    def on_resize(self, event: events.Resize) -> None:
        self._set()

    def tick(self) -> None:
        """One thirtieth of a second more of text."""
        if self._set_for == (0, 0):
            return
        self._typing.advance(self.speed * TICK_SECONDS)
        self.refresh()
        self._wind()

    def advance(self) -> bool:
        """Complete the page, or turn it; False where the whole line has been read."""
        if not self._typing.page_done:
            self._typing.complete_page()
        elif self._typing.next_page():
            if self.speed == 0:
                self._typing.complete_page()
        else:
            return False
        self.refresh()
        self._wind()
        return True

    @property
    def done(self) -> bool:
        return self._typing.done

    @property
    def page_done(self) -> bool:
        return self._typing.page_done

    @property
    def page_cells(self) -> int:
        """Cells of text on the page at hand: how long it takes to read."""
        return sum(cell_len(line) for line in self._typing.sheets[self._typing.page])

    @property
    def choosing(self) -> bool:
        return self.done and bool(self.replies)

    def move(self, steps: int) -> None:
        if self.choosing:
            self.cursor = (self.cursor + steps) % len(self.replies)
            self.refresh()

    def _set(self) -> None:
        size = self.content_size
        if size.width < 4 or size.height < 1 or self._set_for == (size.width, size.height):
            return
        self._set_for = (size.width, size.height)
        sheets = self._sheets(size.width, size.height)
        if self._fresh:
            self._fresh = False
            self._typing = Typing(sheets)
        else:
            self._typing.set_again(sheets)
        if self.speed == 0:
            self._typing.complete_page()
        self.refresh()
        self._wind()

    def _sheets(self, width: int, height: int) -> list[Page]:
        """Pages of text; where replies do not fit under the last one they take one of their own."""
        sheets = pages(self.text, width - 3, height)
        if self.replies:
            needed = len(self._reply_lines(width))
            if len(sheets[-1]) + needed > height:
                sheets.append(())
        return sheets

    def _wind(self) -> None:
        """Run the clock only while text is appearing; tell once a page when all of it stands."""
        if self._timer is not None:
            if self._typing.page_done or self.speed == 0:
                self._timer.pause()
            else:
                self._timer.resume()
        if self._set_for != (0, 0) and self.page_done and self._said != self._typing.page:
            self._said = self._typing.page
            self.post_message(self.Completed())

    # How it looks

    def draw(self, columns: int, rows: int) -> list[Line]:
        ink = VOICE[self.who]
        lines: list[Line] = [(Run(line, ink),) for line in self._typing.visible()]
        if self.choosing:
            replies = self._reply_lines(columns)
            if len(lines) + len(replies) < rows:
                lines.append(())
            lines += replies
        lines = lines[:rows] + [()] * (rows - len(lines))
        if self._typing.page_done and not self.choosing:
            mark = _WAITING_PLAIN if self.plain_glyphs else _WAITING
            used = sum(cell_len(run.text) for run in lines[-1])
            gap = " " * max(columns - used - len(mark), 0)
            lines[-1] = (*lines[-1], Run(gap + mark, "bronze"))
        return lines

    def _reply_lines(self, width: int) -> list[Line]:
        lines: list[Line] = []
        for number, reply in enumerate(self.replies):
            here = number == self.cursor
            head = f"{'>' if here else ' '} {number + 1}  "
            for row, text in enumerate(wrap(reply, max(width - len(head) - INDENT, 2))):
                lead = head if row == 0 else " " * len(head)
                lines.append((Run(lead, "bronze"), Run(text, "strong" if here else "text")))
        return lines

    def on_click(self, event: events.Click) -> None:
        """A click on a reply picks it; anywhere else it goes on, as Enter does."""
        if not self.choosing:
            return
        event.stop()
        row = event.y - self.gutter.top
        owner: list[int] = []
        for number, reply in enumerate(self.replies):
            head = 5 + INDENT
            owner += [number] * len(wrap(reply, max(self.content_size.width - head, 2)))
        start = len(self._typing.visible())
        start += start + len(owner) < self.content_size.height
        if 0 <= row - start < len(owner):
            self.post_message(self.Chosen(owner[row - start]))
