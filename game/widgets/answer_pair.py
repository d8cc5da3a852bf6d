"""Two texts side by side, and the place where they part: brackets round it, whatever the colour.

The texts are a model's own words: they are cleaned, wrapped by cells, and never read as markup.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len

from engine.clean import clean
from game.widgets.cells import graphemes, pad, wrap
from game.widgets.ink import Ink, Line, Run, cells

BESIDE_CELLS = 84
"""From this width the texts stand beside each other, below it one under the other."""
_GUTTER = "  |  "
_INDENT = 2
_MOST = 2000  # characters of either text
_OPEN, _SHUT = "[", "]"


@dataclass(frozen=True)
class AnswerWords:
    """`full` and `build` head the texts; `end` stands where a text stops and the other goes on."""

    full: str
    build: str
    end: str


@dataclass(frozen=True)
class Parting:
    """A text in three parts: as the other's, the word that parts from it, and what follows."""

    same: str
    word: str
    rest: str

    @property
    def marked(self) -> str:
        return f"{self.same}{_OPEN}{self.word}{_SHUT}{self.rest}" if self.word else self.same


def part(own: str, other: str, end: str) -> Parting:
    """Where `own` leaves `other`: at the beginning of the word in which they first differ."""
    mine, theirs = graphemes(own), graphemes(other)
    if mine == theirs:
        return Parting(own, "", "")
    pairs = zip(mine, theirs, strict=False)
    first = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(mine), len(theirs)))
    while first > 0 and _in_word(mine[first - 1]) and _in_word(_at(mine, first, theirs)):
        first -= 1
    while first < len(mine) and not mine[first].strip():
        first += 1  # a blank alone would be brackets round nothing
    if first == len(mine):
        return Parting(f"{own} " if own else "", end, "")
    last = first + 1
    while last < len(mine) and _in_word(mine[last - 1], mine[last]):
        last += 1
    return Parting("".join(mine[:first]), "".join(mine[first:last]), "".join(mine[last:]))


def _at(mine: list[str], place: int, theirs: list[str]) -> str:
    """What stands at the parting: the longer text's sign where the other has ended."""
    return mine[place] if place < len(mine) else theirs[place]


def _in_word(*signs: str) -> bool:
    """Chinese has no spaces to end a word at: there each sign is a word of its own."""
    return all(sign.strip() and cell_len(sign) == 1 for sign in signs)


def draw_pair(full: str, build: str, words: AnswerWords, width: int) -> list[Line]:
    """Both texts, each under its head; lines of at most `width` cells."""
    left, right = (clean(text, _MOST, one_line=True) for text in (full, build))
    one = _Column(words.full, part(left, right, words.end), "silver")
    two = _Column(words.build, part(right, left, words.end), "danger")
    if width < BESIDE_CELLS:
        inner = max(width - _INDENT, 8)
        return [*one.lines(inner, _INDENT), *two.lines(inner, _INDENT)]
    column = (width - len(_GUTTER)) // 2
    rows = (one.lines(column, 0), two.lines(column, 0))
    found: list[Line] = []
    for row in range(max(map(len, rows))):
        here = rows[0][row] if row < len(rows[0]) else ()
        there = rows[1][row] if row < len(rows[1]) else ()
        blank = Run(" " * (column - cells(here)), "text")
        found.append((*here, blank, Run(_GUTTER, "faint"), *there))
    return found


@dataclass(frozen=True)
class _Column:
    head: str
    text: Parting
    ink: Ink

    def lines(self, width: int, indent: int) -> list[Line]:
        lead = (Run(" " * indent, "text"),) if indent else ()
        head: Line = (Run(pad(self.head, width).rstrip(), "dim"),)
        return [head, *((*lead, *line) for line in marked_lines(self.text, width, self.ink))]


def marked_lines(text: Parting, width: int, ink: Ink) -> list[Line]:
    """The text wrapped: what is the other's too in plain ink, what parts from it in `ink`."""
    whole = text.marked
    starts = len(text.same)
    ends = starts + len(text.word) + 2 if text.word else starts
    found: list[Line] = []
    place = 0
    for line in wrap(whole, max(width, 2)):
        runs: list[Run] = []
        for sign in line:
            place = whole.index(sign, place)  # wrapping drops the blanks it breaks at
            own: Ink = "text" if place < starts else ink if place < ends else "dim"
            if runs and runs[-1].ink == own:
                runs[-1] = Run(runs[-1].text + sign, own)
            else:
                runs.append(Run(sign, own))
            place += 1
        found.append(tuple(runs))
    return found
