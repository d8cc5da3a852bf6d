"""Widgets whose picture is a pure function of their size and of the data they were given."""

from __future__ import annotations

from collections.abc import Callable

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from game.widgets.ink import Line, content

Draw = Callable[[int, int, bool], list[Line]]
"""(columns, rows, plain glyphs) -> lines; rows is 0 where the widget is as high as its picture."""


class Drawn(Widget):
    """A subclass draws; this shows it. `plain_glyphs` holds on terminals with ASCII alone.

    A drawing has its own lines: one too long is cut, never wrapped onto the next.
    """

    DEFAULT_CSS = "Drawn { text-wrap: nowrap; text-overflow: clip; }"

    @property
    def plain_glyphs(self) -> bool:
        return bool(getattr(self.app, "plain_glyphs", False))

    def draw(self, columns: int, rows: int) -> list[Line]:
        raise NotImplementedError

    def render(self) -> Content:
        size = self.content_size
        if size.width < 1 or size.height < 1:
            return Content("")
        return content(self.draw(size.width, size.height)[: size.height])


class Picture(Drawn):
    """Shows whatever drawing it was last given; where its height is `auto`, all of it."""

    DEFAULT_CSS = "Picture { height: auto; }"

    def __init__(
        self, draw: Draw | None = None, *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._drawing = draw

    def show(self, draw: Draw | None) -> None:
        self._drawing = draw
        self.refresh(layout=True)

    def draw(self, columns: int, rows: int) -> list[Line]:
        return [] if self._drawing is None else self._drawing(columns, rows, self.plain_glyphs)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        if self._drawing is None or width < 1:
            return 0
        return len(self._drawing(width, 0, self.plain_glyphs))
