"""What the engine process is doing while the player reads: one calm line."""

from __future__ import annotations

from typing import ClassVar

from textual.content import Content
from textual.widget import Widget

from game.waking import EngineState


class EngineLine(Widget):
    """`tell` gives it the words of the state it shows."""

    DEFAULT_CSS: ClassVar[str] = """
    EngineLine { height: 1; padding: 0 1; background: $ink; color: $faint; text-wrap: nowrap; }
    """
    _BAR = 12

    def __init__(self) -> None:
        super().__init__()
        self._state = EngineState()
        self._words = ""

    def tell(self, state: EngineState, words: str) -> None:
        self._state, self._words = state, words
        self.refresh()

    def render(self) -> Content:
        colour = {"awake": "$cyan", "failed": "$violet"}.get(self._state.phase, "$mist")
        line = Content.styled(self._words, colour)
        if self._state.share is None:
            return line
        full = round(self._BAR * min(max(self._state.share, 0.0), 1.0))
        bar = Content.assemble(("=" * full, "$bronze"), ("-" * (self._BAR - full), "$bronze-dim"))
        return Content("  ").join([bar, line])
