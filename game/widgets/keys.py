"""The strip at the foot of a screen: the keys that act here, in the player's language."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual.content import Content
from textual.style import Style
from textual.widget import Widget

_WIDE_GAP, _NARROW_GAP = 3, 2
_COMMON = ("help", "hint", "ledger", "language", "leave")
"""When the strip is too narrow these go before a screen's own keys, the last of them first."""


@dataclass(frozen=True)
class KeyHint:
    """`action` is what a click on the words does."""

    id: str
    key: str
    words: str
    action: str

    @property
    def cells(self) -> int:
        return cell_len(f"{self.key} {self.words}")


def fitting(hints: Sequence[KeyHint], width: int) -> tuple[list[KeyHint], int]:
    """The hints that fit in `width` cells, and the gap between them."""
    kept = list(hints)
    while kept:
        for gap in (_WIDE_GAP, _NARROW_GAP):
            if sum(hint.cells for hint in kept) + gap * (len(kept) - 1) <= width:
                return kept, gap
        common = [hint for hint in kept if hint.id in _COMMON]
        kept.remove(max(common, key=lambda hint: _COMMON.index(hint.id)) if common else kept[-1])
    return [], _NARROW_GAP


class KeyStrip(Widget):
    """One line; every entry can be clicked."""

    DEFAULT_CSS: ClassVar[str] = """
    KeyStrip { dock: bottom; height: 1; padding: 0 1; background: $ink; color: $mist; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.auto_links = False
        self._hints: Sequence[KeyHint] = ()

    def show(self, hints: Sequence[KeyHint]) -> None:
        self._hints = tuple(hints)
        self.refresh()

    def render(self) -> Content:
        kept, gap = fitting(self._hints, self.content_size.width)
        parts: list[Content] = []
        for hint in kept:
            action = hint.action if "." in hint.action else f"screen.{hint.action}"
            click = Style.from_meta({"@click": action})
            label = Content.assemble((hint.key, "bold $bronze"), " ", (hint.words, "$mist"))
            parts.append(label.stylize(click))
        return Content(" " * gap).join(parts)
