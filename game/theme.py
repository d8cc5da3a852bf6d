"""The palette of the hall, its Textual theme, and what remains of it without colour.

Ink is the ground. Bronze is the hall and the player's things; cyan the Wall, memory and cold
facts; violet danger and debt; silver a measured truth. No state is told by colour alone.
"""

from __future__ import annotations

import os
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

INK = "#0b0e11"
INK_RAISED = "#13191e"
BRONZE = "#b9945a"
BRONZE_BRIGHT = "#e2bf80"
BRONZE_DIM = "#6f5a38"
CYAN = "#44959e"
CYAN_BRIGHT = "#7cc4ca"
CYAN_DIM = "#1f4349"
VIOLET = "#a384ea"
VIOLET_DIM = "#57468a"
SILVER = "#e3e8ec"
MIST = "#97a2aa"
FAINT = "#5d6870"

NAME = "hall"

VARIABLES = {
    "ink": INK,
    "ink-raised": INK_RAISED,
    "bronze": BRONZE,
    "bronze-bright": BRONZE_BRIGHT,
    "bronze-dim": BRONZE_DIM,
    "cyan": CYAN,
    "cyan-bright": CYAN_BRIGHT,
    "cyan-dim": CYAN_DIM,
    "violet": VIOLET,
    "violet-dim": VIOLET_DIM,
    "silver": SILVER,
    "mist": MIST,
    "faint": FAINT,
    "block-cursor-background": BRONZE_DIM,
    "block-cursor-foreground": SILVER,
    "input-cursor-background": BRONZE_BRIGHT,
    "input-cursor-foreground": INK,
    "input-selection-background": f"{BRONZE_DIM} 60%",
    "scrollbar": "#26313a",
    "scrollbar-hover": BRONZE_DIM,
    "scrollbar-active": BRONZE,
    "scrollbar-background": INK,
    "scrollbar-background-hover": INK,
    "scrollbar-background-active": INK,
    "scrollbar-corner-color": INK,
    "border": BRONZE_DIM,
    "border-blurred": "#26313a",
}

HALL = Theme(
    name=NAME,
    primary=BRONZE,
    secondary=CYAN,
    accent=VIOLET,
    foreground=SILVER,
    background=INK,
    surface=INK,
    panel=INK_RAISED,
    success=CYAN_BRIGHT,
    warning=BRONZE_BRIGHT,
    error=VIOLET,
    dark=True,
    variables=VARIABLES,
)


def colour_forbidden() -> bool:
    """Whether the environment asks for no colour (https://no-color.org: set and not empty)."""
    return bool(os.environ.get("NO_COLOR"))


@lru_cache(4096)
def without_colour(style: Style) -> Style:
    """`style` with the terminal's own colours; what was faint is dim, what was lit is bold.

    A filled background (a badge, a selected row) becomes reverse video.
    """
    ink = Color.parse(INK).brightness
    faint = style.color is not None and Color.from_rich_color(style.color).brightness < 0.45
    ground = style.bgcolor
    filled = ground is not None and Color.from_rich_color(ground).brightness > ink + 0.14
    return Style(
        bold=style.bold,
        dim=(faint and not filled) or None,
        italic=style.italic,
        underline=style.underline,
        reverse=(filled or bool(style.reverse)) or None,
        strike=style.strike,
        meta=style.meta or None,
    )


class NoColour(LineFilter):
    """Sends no colour code at all, unlike Textual's own grey scale."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, None if style is None else without_colour(style), control)
            for text, style, control in segments
        ]
