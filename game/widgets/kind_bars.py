"""The width of every kind of matrix, as bars of sixteen bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.cells import cell_len

from engine.recipe import FULL
from engine.weight_format import ROW
from game.widgets.bars import draw_bar
from game.widgets.cells import clip, pad
from game.widgets.figures import share
from game.widgets.ink import Line, Run
from game.widgets.kept import KINDS, Keeping, Kept, Kind

_LEAST_BAR, _MOST_BAR = 8, 32


@dataclass(frozen=True)
class KindWords:
    """`bits` and `group` say a number of them, `of_all` a share of the weights."""

    kinds: Mapping[Kind, str]
    bits: Callable[[int], str]
    group: Callable[[int], str]
    row: str
    of_all: Callable[[str], str]
    as_rest: str


def draw_kinds(keeping: Keeping, words: KindWords, columns: int, plain: bool = False) -> list[Line]:
    """A line a kind: its bar, bits and group, and its share of the model's weights."""
    head = max(cell_len(words.kinds[kind]) for kind in KINDS) + 2
    told = {kept.kind: _told(kept, keeping, words) for kept in keeping.kinds}
    said = max(map(cell_len, told.values()))
    bar = min(max(columns - head - said - 2, _LEAST_BAR), _MOST_BAR)
    lines: list[Line] = []
    for kept in keeping.kinds:
        name = Run(pad(words.kinds[kept.kind], head), "text")
        room = max(columns - head - bar - 2, 0)
        rest = Run("  " + clip(told[kept.kind], room), "dim")
        if kept.elements:
            rail = draw_bar(kept.bits / FULL, bar, "bronze" if kept.scheme else "silver", plain)
        else:
            rail = (Run(" " * bar, "faint"),)
        lines.append((name, *rail, rest))
    return lines


def _told(kept: Kept, keeping: Keeping, words: KindWords) -> str:
    if not kept.elements:
        return words.as_rest
    parts = [words.bits(kept.bits)]
    if kept.scheme is not None:
        group = kept.scheme.group
        parts.append(words.row if group == ROW else words.group(group))
    parts.append(words.of_all(share(kept.elements / keeping.elements)))
    return "  ".join(parts)
