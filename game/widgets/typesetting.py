"""A line of dialogue set on pages before it is typed, so that nothing moves while it appears."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from game.widgets.cells import graphemes, wrap
from game.widgets.ink import Ink, Line, Run

Page = tuple[str, ...]


def pages(text: str, width: int, rows: int) -> list[Page]:
    """`text` wrapped to `width` cells, `rows` lines a page; never without a page."""
    lines = wrap(text, max(width, 2))
    rows = max(rows, 1)
    return [tuple(lines[start : start + rows]) for start in range(0, max(len(lines), 1), rows)]


def paragraph(text: str, width: int, ink: Ink = "text") -> list[Line]:
    """`text` wrapped to `width` cells, as drawn lines."""
    return [(Run(line, ink),) for line in wrap(text, max(width, 2))]


def length(page: Page) -> int:
    """Graphemes on a page: what the text speed counts."""
    return sum(len(graphemes(line)) for line in page)


def typed(page: Page, count: int) -> list[str]:
    """The first `count` graphemes of a page, each on the line where it will stay."""
    shown: list[str] = []
    left = count
    for line in page:
        signs = graphemes(line)
        shown.append("".join(signs[: max(left, 0)]))
        left -= len(signs)
    return shown


@dataclass
class Typing:
    """How much of a text has appeared: a page, and graphemes of it (fractions accumulate)."""

    sheets: Sequence[Page] = ((),)
    page: int = 0
    shown: float = 0.0

    @property
    def _length(self) -> int:
        return length(self.sheets[self.page])

    @property
    def page_done(self) -> bool:
        return self.shown >= self._length

    @property
    def done(self) -> bool:
        return self.page_done and self.page == len(self.sheets) - 1

    def advance(self, graphemes_more: float) -> None:
        self.shown = min(self.shown + graphemes_more, float(self._length))

    def complete_page(self) -> None:
        self.shown = float(self._length)

    def next_page(self) -> bool:
        """Turn the page; False on the last one."""
        if self.page == len(self.sheets) - 1:
            return False
        self.page += 1
        self.shown = 0.0
        return True

    def visible(self) -> list[str]:
        return typed(self.sheets[self.page], int(self.shown))

    def set_again(self, sheets: Sequence[Page]) -> None:
        """The same line in another language or width: as far through it as before."""
        done, page_done = self.done, self.page_done
        total = sum(length(sheet) for sheet in self.sheets)
        read = sum(length(sheet) for sheet in self.sheets[: self.page]) + self.shown
        share = read / total if total else 1.0
        self.sheets = tuple(sheets)
        if done:
            self.page = len(self.sheets) - 1
            self.complete_page()
            return
        target = share * sum(length(sheet) for sheet in self.sheets)
        self.page = 0
        while self.page < len(self.sheets) - 1 and target >= length(self.sheets[self.page]):
            target -= length(self.sheets[self.page])
            self.page += 1
        self.shown = min(max(target, 0.0), float(self._length))
        if page_done:
            self.complete_page()
