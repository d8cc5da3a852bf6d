"""A record's page: headings, sentences, names with values, in lines of one width."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len
from textual.content import Content

from engine.clean import clean
from game.widgets.cells import pad, wrap
from game.widgets.ink import Line, content

_LONGEST_FIELD = 200  # characters of any one foreign value


class Page:
    """Foreign text is cleaned on its way in, and never read as markup."""

    _NAME_CELLS = 30

    def __init__(self, width: int) -> None:
        self.lines: list[Content] = []
        self.width = max(width, 20)
        self._name = min(self._NAME_CELLS, self.width // 2)

    def gap(self) -> None:
        if self.lines and self.lines[-1].plain:
            self.lines.append(Content(""))

    def line(self, text: str, style: str) -> None:
        self.text(text, style)

    def text(self, text: str, style: str) -> None:
        shown = clean(text, limit=1000)
        self.lines += [Content.styled(line, style) for line in wrap(shown, self.width)]

    def drawn(self, lines: Iterable[Line]) -> None:
        """Lines that were drawn already, none of them wider than the page."""
        self.lines += [content([line]) for line in lines]

    def section(self, heading: str) -> None:
        self.gap()
        self.line(heading, "bold $bronze")

    def pair(self, name: str, value: str, style: str = "$silver") -> None:
        """Name and value side by side; a value that needs more room goes on below."""
        name = clean(name, limit=_LONGEST_FIELD, one_line=True)
        value = clean(value, limit=_LONGEST_FIELD, one_line=True)
        room = self.width - self._name
        if cell_len(name) >= self._name:
            self.lines.append(Content.styled(wrap(name, self.width)[0], "$mist"))
            head = " " * self._name
        else:
            head = pad(name, self._name)
        first, *rest = wrap(value, max(room, 8))
        self.lines.append(Content.assemble((head, "$mist"), (first, style)))
        self.lines += [Content.styled(" " * self._name + more, style) for more in rest]
