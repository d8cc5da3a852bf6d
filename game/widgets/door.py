"""The open door of the title: the name of the game and its lines, in the light."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.content import Content
from textual.geometry import Region, Size
from textual.style import Style
from textual.widget import Widget

ARCH_ROWS = 3
_AIRY_HEIGHT = 32  # rows of wall above which the door is drawn with more air


@dataclass(frozen=True)
class DoorText:
    """What stands in the door. `entries` are (id, words); `account` is the debt, or empty."""

    name: str
    under_name: str
    motto: str
    entries: tuple[tuple[str, str], ...]
    account: str = ""
    owing: bool = False


def door_region(wall: Size, entries: int) -> Region:
    """Where the door stands in a wall of this size: an even column, so no wide rune is cut."""
    airy = wall.height >= _AIRY_HEIGHT
    height = 11 + entries + (4 if airy else 0)
    width = min(44 if airy else 40, wall.width // 2 * 2 - 8)
    x = (wall.width - width) // 4 * 2
    y = max((wall.height - height) * 2 // 5, 0)
    return Region(x, y, width, min(height, wall.height - y))


class Door(Widget):
    """Draws inside the gap that the rune field leaves; a click chooses an entry."""

    DEFAULT_CSS: ClassVar[str] = """
    Door { layer: door; position: absolute; background: $ink; color: $silver; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.auto_links = False
        self._text = DoorText("", "", "", ())
        self._chosen = 0
        self._mark = "▸"

    def show(self, text: DoorText, chosen: int, mark: str) -> None:
        self._text, self._chosen, self._mark = text, chosen, mark
        self.refresh()

    def place(self, region: Region) -> None:
        self.styles.offset = (region.x, region.y + ARCH_ROWS)
        self.styles.width = region.width
        self.styles.height = max(region.height - ARCH_ROWS, 1)

    def render(self) -> Content:
        width = self.size.width
        airy = self.size.height >= 12 + len(self._text.entries)
        text = self._text
        lines = [
            Content.styled(text.name, "bold $silver"),
            Content.styled(text.under_name, "$bronze"),
            *([Content("")] if airy else []),
            Content(""),
            Content.styled(text.motto, "$mist"),
            *([Content("")] if airy else []),
            Content(""),
            *_menu(text.entries, self._chosen, self._mark),
            *([Content("")] if airy else []),
            Content(""),
            Content.styled(text.account, "$violet" if text.owing else "$cyan-bright"),
        ]
        return Content("\n").join(_centred(line, width) for line in lines)


def _centred(line: Content, width: int) -> Content:
    return line.pad_left(max(width - line.cell_length, 0) // 2)


def _menu(entries: Sequence[tuple[str, str]], chosen: int, mark: str) -> list[Content]:
    """The entries as a block in the middle, their marks in one column."""
    widest = max((Content(words).cell_length for _, words in entries), default=0)
    lines = []
    for number, (entry, words) in enumerate(entries):
        lit = number == chosen
        label = Content.assemble(
            (f"{mark} " if lit else "  ", "bold $bronze-bright"),
            (words, "bold $bronze-bright" if lit else "$mist"),
        )
        click = Style.from_meta({"@click": f"screen.choose({entry!r})"})
        lines.append(label.stylize(click).pad_right(widest + 4 - label.cell_length))
    return lines
