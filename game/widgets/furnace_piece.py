"""Quantisation Furnace: the weights of a matrix on the press, and error by layer as heat.

First view: while weights are quantised and after, how those of one matrix lay and lie now. Before
that, by formula: what the build on the forge would hold, and the empty grid of one group. Second
view, once a matrix was pressed: the error of each, layer by layer.
"""

from __future__ import annotations

from rich.cells import cell_len
from textual.app import ComposeResult

from engine.quantised import Histogram, LayerError
from engine.recipe import FULL
from engine.weight_format import ROW, Scheme
from game.measured import Pressing
from game.widgets.bars import draw_bar
from game.widgets.cells import clip, pad
from game.widgets.drawn import Picture
from game.widgets.figures import plain_number, share
from game.widgets.hall_piece import HallPiece
from game.widgets.heat import MATRICES, draw_heat, worst
from game.widgets.ink import Ink, Line, Run
from game.widgets.kept import Keeping, Kept
from game.widgets.press import draw_levels, draw_press, tallest
from game.widgets.typesetting import paragraph

_BAR = 16
_ENTRIES = 38
_BESIDE = 76
_MOST_GRID, _DENSE_GRID = 9, 2
"""Rows of the empty grid at the most, a groove says no more for being longer; and of one whose
grooves are closer than dots."""


class FurnacePiece(HallPiece):
    DEFAULT_CSS = """
    FurnacePiece Picture { height: 1fr; width: 1fr; padding: 0 2; }
    """

    @property
    def two_views(self) -> bool:
        pressing = self._pressing()
        return pressing is not None and bool(pressing.errors)

    def compose(self) -> ComposeResult:
        yield Picture(id="press")
        yield Picture(id="heat")

    def set_out(self) -> None:
        super().set_out()
        self.share_room(self.query_one("#press"), self.query_one("#heat"))

    def update_piece(self) -> None:
        self.set_out()
        self.query_one("#press", Picture).show(self._draw_press)
        if self.two_views:
            self.query_one("#heat", Picture).show(self._draw_heat)

    def _pressing(self) -> Pressing | None:
        return self.frame.measured.presses.get("candidate")

    # The press

    def _draw_press(self, columns: int, rows: int, plain: bool) -> list[Line]:
        rows = rows or 14
        pressing = self._pressing()
        if pressing is None:
            return self._by_formula(columns, rows, plain)
        lies = pressing.histogram
        head = self._head(pressing, columns, plain)
        if lies is None:
            return [head, *self._by_formula(columns, rows - 1, plain)]
        before = self._words("before", FULL, lies.before)
        after = self._words("after", self._bits_of(lies), lies.after)
        name = self.say("piece.furnace.lies", layer=lies.layer + 1, matrix=self._matrix(lies.name))
        lines = [head, (Run(clip(name, columns), "dim"),)]
        return [*lines, *draw_press(lies, before, after, columns, rows - len(lines), plain)]

    def _head(self, pressing: Pressing, columns: int, plain: bool) -> Line:
        """What is on the press with how far it has come; of a finished trial, the worst."""
        error = pressing.error
        if error is None:
            return self._worst(pressing, columns)
        counted = self.say("piece.furnace.done", done=pressing.done, total=pressing.total)
        told = self.say("piece.furnace.pressing", **self._of(error))
        bar = draw_bar(pressing.done / max(pressing.total, 1), _BAR, "bronze", plain)
        rest = f"  {counted}   {told}"
        return (*bar, Run(clip(rest, max(columns - _BAR, 0)), "text"))

    def _words(self, when: str, bits: int, counts: tuple[int, ...]) -> tuple[str, ...]:
        say = self.say
        return (
            say(f"piece.furnace.{when}"),
            say("piece.furnace.width", bits=bits) if bits else "",
            say("piece.furnace.tallest"),
            say("piece.furnace.share", share=share(tallest(counts))),
        )

    def _bits_of(self, lies: Histogram) -> int:
        """The width of the matrix that lies there; 0 where it is not known."""
        keeping = self.frame.keeping
        if keeping is None:
            return 0
        kind = keeping.of("attention" if lies.name in ("qkv", "o") else "mlp")
        kept = kind if kind.elements else keeping.of("edges")
        return kept.bits

    def _worst(self, pressing: Pressing, columns: int) -> Line:
        found = worst(pressing.errors)
        told = "" if found is None else self.say("piece.furnace.worst", **self._of(found))
        return (Run(clip(told, columns), "text"),)

    def _of(self, error: LayerError) -> dict[str, str | int]:
        return {
            "layer": error.layer + 1,
            "matrix": self._matrix(error.name),
            "error": share(error.error),
        }

    def _matrix(self, name: str) -> str:
        return self.say(f"piece.furnace.matrix.{name}") if name in MATRICES else name

    # By formula

    def _by_formula(self, columns: int, rows: int, plain: bool) -> list[Line]:
        """What the build would hold, and the empty grid of a group, side by side where they fit."""
        keeping = self.frame.keeping
        if keeping is None:
            return [(), *paragraph(self.say("piece.furnace.unknown"), columns, "dim")]
        kept = keeping.pressed
        if kept is None or kept.scheme is None:
            key = "piece.furnace.full" if keeping.full else "piece.furnace.table_alone"
            entries = self._entries(keeping, kept)
            return [*entries, (), *paragraph(self.say(key), columns, "text")]
        entries = self._entries(keeping, kept)
        if columns < _BESIDE:
            left = rows - len(entries)
            return [*entries, *self._grid(kept.scheme, columns, left, plain)]
        grid = self._grid(kept.scheme, columns - _ENTRIES - 2, rows - 1, plain)
        lines: list[Line] = [entries[0]]
        for number in range(max(len(entries) - 1, len(grid))):
            entry = entries[number + 1] if number + 1 < len(entries) else ()
            used = sum(cell_len(run.text) for run in entry)
            gap = Run(" " * (_ENTRIES + 2 - used), "text")
            lines.append((*entry, gap, *(grid[number] if number < len(grid) else ())))
        return lines

    def _entries(self, keeping: Keeping, kept: Kept | None) -> list[Line]:
        say = self.say
        bits = kept.bits if kept is not None else FULL
        found: list[tuple[str, str, Ink]] = [("bits", str(bits), "bronze")]
        if kept is not None and kept.scheme is not None:
            group = kept.scheme.group
            size = say("piece.furnace.row") if group == ROW else str(group)
            found += [
                ("levels", str(1 << bits), "bronze"),
                ("group", size, "text"),
                ("method", say(f"knob.value.{keeping.method}"), "text"),
            ]
        price = self.frame.prices.get("candidate")
        if price is not None and keeping.elements:
            mean = 8 * price.weights / keeping.elements
            found += [
                ("mean", plain_number(mean), "silver"),
                ("of_full", share(mean / FULL), "silver"),
            ]
        width = max(cell_len(say(f"piece.furnace.{key}")) for key, _, _ in found) + 2
        lines: list[Line] = [(Run(say("piece.furnace.formula"), "bronze"),)]
        for key, value, ink in found:
            name = pad(say(f"piece.furnace.{key}"), min(width, _ENTRIES - 8))
            lines.append((Run(name, "dim"), Run(clip(value, 10), ink)))
        return lines

    def _grid(self, scheme: Scheme, columns: int, rows: int, plain: bool) -> list[Line]:
        """The levels that one group's weights will be moved to, where a dot can tell them apart."""
        if rows < 4:
            return []
        levels = 1 << scheme.bits
        half = levels // 2
        ends = (self.say("piece.furnace.least"), self.say("piece.furnace.largest"))
        if scheme.symmetric:
            step = "piece.furnace.step"
            ends = (self.say(step, count=-half), self.say(step, count=half - 1))
        dense = levels > columns
        told = self.say(f"piece.furnace.{'dense' if dense else 'grid'}", levels=levels)
        notes = paragraph(told, columns, "dim")
        high = min(rows - len(notes), _DENSE_GRID if dense else _MOST_GRID)
        drawn = draw_levels(levels, ends, scheme.symmetric, columns, high, plain)
        return [*drawn, *notes]

    # The heat

    def _draw_heat(self, columns: int, rows: int, plain: bool) -> list[Line]:
        pressing = self._pressing()
        if pressing is None:
            return []
        names = {name: self._matrix(name) for name in MATRICES}
        for word in ("layer", "from", "embedding"):
            names[word] = self.say(f"piece.furnace.{word}")
        names["mean"] = self.say("piece.furnace.mean_error")
        # Four matrices a layer: so the map has its full breadth from the first one on.
        layers = max([-(-pressing.total // len(MATRICES))] + [e.layer + 1 for e in pressing.errors])
        if self.frame.result is not None and self.frame.result.quantised is not None:
            layers = max(layers, self.frame.result.quantised.layers)
        title: Line = (Run(clip(self.say("piece.furnace.heat"), columns), "bronze"),)
        drawn = draw_heat(pressing.errors, layers, names, columns, (rows or 14) - 2, plain)
        return [title, self._worst(pressing, columns), *drawn]
