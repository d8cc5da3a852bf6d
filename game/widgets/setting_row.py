"""One setting: its name, and its values side by side with the present one in brackets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.content import Content
from textual.message import Message
from textual.style import Style
from textual.widget import Widget

from game.widgets.cells import pad

NAME_CELLS = 22


@dataclass(frozen=True)
class SettingView:
    """`values` are the words of each choice, `now` the index of the present one."""

    name: str
    values: Sequence[str]
    now: int
    about: str


class SettingRow(Widget):
    """A click on a value takes it; a click elsewhere chooses the row."""

    DEFAULT_CSS: ClassVar[str] = """
    SettingRow { height: 1; width: 100%; padding: 0 1; background: $ink; }
    SettingRow.-chosen { background: $ink-raised; }
    """

    class Chosen(Message):
        def __init__(self, setting: str) -> None:
            self.setting = setting
            super().__init__()

    def __init__(self, setting: str) -> None:
        super().__init__()
        self.auto_links = False
        self.setting = setting
        self._view: SettingView | None = None
        self._chosen = False
        self._mark = "▸"

    def show(self, view: SettingView, chosen: bool, mark: str) -> None:
        self._view, self._chosen, self._mark = view, chosen, mark
        self.set_class(chosen, "-chosen")
        self.refresh()

    def render(self) -> Content:
        view = self._view
        if view is None:
            return Content("")
        name_style = "bold $bronze-bright" if self._chosen else "$silver"
        parts = [
            Content.styled(f"{self._mark if self._chosen else ' '} ", "bold $bronze-bright"),
            Content.styled(pad(view.name, NAME_CELLS), name_style),
        ]
        for number, words in enumerate(view.values):
            now = number == view.now
            shown = Content.styled(
                f"[{words}]" if now else f" {words} ", "bold $bronze-bright" if now else "$mist"
            )
            click = Style.from_meta({"@click": f"screen.take({self.setting!r}, {number})"})
            parts.append(shown.stylize(click) + " ")
        return Content("").join(parts)

    def on_click(self, event: events.Click) -> None:
        self.post_message(self.Chosen(self.setting))
