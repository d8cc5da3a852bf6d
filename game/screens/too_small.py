"""The veil over a terminal too small to play in. It leaves when the terminal grows."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

LEAST = Size(60, 20)


def too_small(size: Size) -> bool:
    return size.width < LEAST.width or size.height < LEAST.height


class TooSmall(Widget):
    """Lies over the whole screen while the terminal is below 60 x 20, in both languages.

    It covers and does not replace: what lies under it keeps its state and its place on the stack.
    """

    DEFAULT_CSS: ClassVar[str] = """
    TooSmall {
        layer: veil; position: absolute; width: 100%; height: 100%; display: none;
        background: $ink; color: $silver; content-align: center middle; text-align: center;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._found = LEAST

    def show(self, found: Size | None) -> None:
        self.display = found is not None
        if found is not None:
            self._found = found
            self.refresh()

    def render(self) -> Content:
        found = f"{self._found.width} x {self._found.height}"
        needed = f"{LEAST.width} x {LEAST.height}"
        return Content.assemble(
            ("终端太小\n", "bold $bronze-bright"),
            f"现为 {found}，至少要 {needed}。\n",
            ("拉大窗口，便可继续。\n\n", "$mist"),
            ("This terminal is too small\n", "bold $bronze-bright"),
            f"It is {found}; the hall needs {needed}.\n",
            ("Make it larger and play goes on.", "$mist"),
        )
