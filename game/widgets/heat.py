"""Error by layer as heat: a column a layer, a row a kind of matrix, denser where it is worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

from rich.cells import cell_len

from engine.quantised import LayerError
from game.widgets.cells import pad, pad_left
from game.widgets.figures import share
from game.widgets.ink import Ink, Line, Run, cells

MATRICES = ("qkv", "o", "gate_up", "down")
SHADES: tuple[tuple[str, str, Ink], ...] = (
    ("⠂", ".", "faint"),
    ("⠒", "-", "dim"),
    ("⠶", "+", "bronze"),
    ("⣶", "%", "bronze"),
    ("⣿", "#", "silver"),
)
"""Sign, ASCII sign and ink, coolest first: iron that glows brighter the hotter it is."""
_MEAN = 6
_WIDTHS = (3, 2, 1)


def worst(errors: Sequence[LayerError]) -> LayerError | None:
    """The layer's matrix that came out worst; the embedding is no layer."""
    layers = [error for error in errors if error.layer >= 0]
    return max(layers, key=lambda one: one.error, default=None)


def shade_of(error: float, least: float, most: float) -> int:
    """Which of `SHADES`: equal steps of the logarithm between the least error and the largest."""
    if error <= least or most <= least:
        return 0
    if least <= 0:
        return min(int(len(SHADES) * error / most), len(SHADES) - 1)
    part = log(error / least) / log(most / least)
    return min(int(part * len(SHADES)), len(SHADES) - 1)


def steps_of(least: float, most: float) -> list[float]:
    """The error at which each shade begins."""
    count = len(SHADES)
    if most <= least:
        return [least]
    if least <= 0:
        return [most * step / count for step in range(count)]
    return [least * (most / least) ** (step / count) for step in range(count)]


def draw_heat(
    errors: Sequence[LayerError],
    layers: int,
    names: Mapping[str, str],
    columns: int,
    rows: int,
    plain: bool = False,
) -> list[Line]:
    """`names` are the rows' words by matrix, and "layer", "mean", "from" and "embedding".

    A place with no error yet is blank. Where there are more layers than room, a place is several
    neighbours and shows the worst of them.
    """
    found = {(one.layer, one.name): one.error for one in errors if one.layer >= 0}
    if not found:
        return []
    least, most = min(found.values()), max(found.values())
    table = next((one for one in errors if one.layer < 0), None)
    named = (*MATRICES, "layer", *(("embedding",) if table is not None else ()))
    head = max(cell_len(names[name]) for name in named) + 2
    room = max(columns - head - _MEAN, 1)
    width = next((width for width in _WIDTHS if layers * width <= room), 1)
    each = -(-layers * width // room)
    places = -(-layers // each)
    # Two lines a matrix where the sheet is tall: axis and scale take two, the embedding one.
    high = 2 if rows >= 2 * len(MATRICES) + 4 else 1
    lines = [_top(names, head, places * width)]
    for name in MATRICES:
        row = [
            max(
                (found[at, name] for at in _layers(place, each, layers) if (at, name) in found),
                default=None,
            )
            for place in range(places)
        ]
        drawn = _row(row, least, most, width, plain)
        of_kind = [error for (_, kind), error in found.items() if kind == name]
        mean = share(sum(of_kind) / len(of_kind)) if of_kind else ""
        lines.append(
            (Run(pad(names[name], head), "text"), *drawn, Run(pad_left(mean, _MEAN), "dim"))
        )
        lines += [(Run(" " * head, "text"), *drawn)] * (high - 1)
    lines.append(_layer_axis(names["layer"], head, places, width, each))
    if table is not None:
        lines.append((Run(pad(names["embedding"], head) + share(table.error), "dim"),))
    return [*lines, draw_scale(least, most, names["from"], columns, plain)]


def _layers(place: int, each: int, layers: int) -> range:
    return range(place * each, min((place + 1) * each, layers))


def _top(names: Mapping[str, str], head: int, across: int) -> Line:
    return (Run(" " * (head + across) + pad_left(names["mean"], _MEAN), "faint"),)


def _row(
    row: Sequence[float | None], least: float, most: float, width: int, plain: bool
) -> tuple[Run, ...]:
    runs: list[Run] = []
    for error in row:
        sign, ink = " ", SHADES[0][2]
        if error is not None:
            glyph, ascii_sign, ink = SHADES[shade_of(error, least, most)]
            sign = ascii_sign if plain else glyph
        # Wide places are parted; narrow ones touch, as the layers of one sheet.
        text = sign * (width - 1) + " " if width > 2 else sign * width
        if runs and runs[-1].ink == ink:
            runs[-1] = Run(runs[-1].text + text, ink)
        else:
            runs.append(Run(text, ink))
    return tuple(runs)


def _layer_axis(word: str, head: int, places: int, width: int, each: int) -> Line:
    """Layers count from 1: the first place has its number and every fifth, where there is room."""
    text = ""
    for place in range(places):
        number = str(place * each + 1)
        fits = place * width + len(number) <= places * width
        if (place == 0 or place % 5 == 4) and fits:
            text = text.ljust(place * width) + number
    return (Run(pad(word, head), "dim"), Run(text, "faint"))


def draw_scale(least: float, most: float, word: str, columns: int, plain: bool = False) -> Line:
    """Each shade and the error from which it is drawn, closer together on a narrow sheet."""
    for wide, gap in ((2, "   "), (1, " ")):
        runs: list[Run] = [Run(f"{word}{gap}", "dim")]
        for (glyph, ascii_sign, ink), start in zip(SHADES, steps_of(least, most), strict=False):
            sign = ascii_sign if plain else glyph
            runs += [Run(sign * wide, ink), Run(f" {share(start)}{gap}", "dim")]
        if cells(tuple(runs)) <= columns:
            break
    return tuple(runs)
