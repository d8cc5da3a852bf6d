"""Runs of inked text: what the drawing code makes, and how Textual shows it.

Drawing is pure: data in, lines out. Only `content` knows the toolkit and the theme's colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from rich.cells import cell_len
from textual.content import Content

Ink = Literal[
    "text",  # what is read
    "strong",  # what must not be missed
    "dim",  # beside it
    "faint",  # scales, empty places
    "bronze",  # the hall, prefill, the player's things
    "wall",  # cold facts, memory, decode
    "water",  # memory in use, beneath its surface
    "deep",  # the same, far down; what is set aside and empty
    "danger",  # debt, what broke
    "spill",  # what was asked beyond a bound, as a mass
    "silver",  # truth measured
    "pass",  # the verdict's badge
    "fail",
    "inconclusive",
    "invalid",
]

STYLES: Mapping[Ink, str] = {
    "text": "$silver",
    "strong": "bold $silver",
    "dim": "$mist",
    "faint": "$faint",
    "bronze": "$bronze-bright",
    "wall": "$cyan-bright",
    "water": "$cyan",
    "deep": "$cyan-dim",
    "danger": "bold $violet",
    "spill": "$violet",
    "silver": "bold $silver",
    "pass": "bold $ink on $cyan-bright",
    "fail": "bold $ink on $violet",
    "inconclusive": "bold $ink on $bronze-bright",
    "invalid": "bold $ink on $mist",
}


class Run(NamedTuple):
    text: str
    ink: Ink


Line = tuple[Run, ...]


def cells(line: Line) -> int:
    """Width of a line on the screen."""
    return sum(cell_len(run.text) for run in line)


def plain(line: Line) -> str:
    return "".join(run.text for run in line)


def content(lines: Iterable[Line]) -> Content:
    """The lines as Textual shows them. Text is never parsed as markup."""
    parts: list[str | Content | tuple[str, str]] = []
    for number, line in enumerate(lines):
        if number:
            parts.append("\n")
        parts.extend((run.text, STYLES[run.ink]) for run in line)
    return Content.assemble(*parts)
