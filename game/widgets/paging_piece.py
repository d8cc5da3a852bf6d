"""Paging Array: the live page maps of both builds, and the load's requests as lanes.

First view: one place a block. Before a trial it is the pool as the formula lays it out: free until
the guess is sealed (while the needle of the dial moves, the slots of the contiguous layout are
filled to its share), then filled as the formula says the load will. After a trial the means of what
was measured stand there. Second view, once loads were served: each request from the start of the
load to its last token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.app import ComposeResult

from engine.cache_plan import CachePlan
from engine.config import CacheConfig
from engine.messages import Pages
from engine.page_map import CELL_SIGNS, Cell, PageMap
from engine.price import Price
from engine.trial import LoadSample
from game.load_figures import BuildFigures, build_figures
from game.measured import BUILDS, BuildName, loads_of, typical_load
from game.widgets.bars import draw_bar
from game.widgets.cells import clip, pad
from game.widgets.drawn import Picture
from game.widgets.figures import duration, plain_number, share
from game.widgets.hall_piece import HallPiece
from game.widgets.ink import Ink, Line, Run, cells
from game.widgets.page_grid import CELLS, draw_legend, draw_pages, lay_out
from game.widgets.request_lanes import LANE_INK, STRETCHES, draw_lanes

MAP_CELL = 16
"""Tokens of a place where slots are drawn, as the engine's own map has it."""
INK_OF: dict[BuildName, Ink] = {"reference": "wall", "candidate": "bronze"}
_BAR = 16
_LEAST_LANES = 50


@dataclass(frozen=True)
class Field:
    """A build's blocks and what is said of them. `group` is the blocks of a slot, 0 where paged."""

    pages: PageMap
    group: int
    heard: Pages | None = None
    measured: bool = False
    planned: bool = False


class PagingPiece(HallPiece):
    BOTH_ROWS = 30
    DEFAULT_CSS = """
    PagingPiece Picture { height: 1fr; width: 1fr; padding: 0 2; }
    """

    @property
    def two_views(self) -> bool:
        return self._loads() is not None

    def compose(self) -> ComposeResult:
        yield Picture(id="pages")
        yield Picture(id="lanes")

    def set_out(self) -> None:
        super().set_out()
        self.share_room(self.query_one("#pages"), self.query_one("#lanes"))

    def update_piece(self) -> None:
        self.set_out()
        self.query_one("#pages", Picture).show(self._draw_pages)
        if self.two_views:
            self.query_one("#lanes", Picture).show(self._draw_lanes)

    # The page maps

    def _draw_pages(self, columns: int, rows: int, plain: bool) -> list[Line]:
        fields = {build: found for build in BUILDS if (found := self._field(build)) is not None}
        if not fields:
            return [(), (Run(clip(self.say("piece.paging.unknown"), columns), "dim"),)]
        words: dict[Cell, str] = {cell: self.say(f"piece.cell.{cell}") for cell in CELLS}
        maps = [field.pages for field in fields.values()]
        legend = draw_legend(maps, words, columns, plain)
        room = (rows or 14) - len(legend)
        each = max(room // len(fields) - 1, 1)
        airy = each >= 4
        spare = room - len(fields) * (each + 1)
        lines: list[Line] = []
        for build, field in fields.items():
            head, told = self._head(build, field, columns, each - airy, plain)
            lines += [head]
            if told and spare > 0:
                # What the head had no room for has a line of its own, where there is one.
                lines.append((Run(told, "dim"),))
                spare -= 1
            fresh = self.frame.measured.fresh.get(build, ())
            lines += draw_pages(field.pages, columns, each - airy, fresh, plain, field.group)
            lines += [()] * airy
        return [*lines[:room], *legend]

    def _head(
        self, build: BuildName, field: Field, columns: int, rows: int, plain: bool
    ) -> tuple[Line, str]:
        """Whose, which layout, use of memory, what the requests do; and what is left to say."""
        pages = field.pages
        layout = self.say(f"knob.value.{pages.layout}")
        if pages.layout == "paged":
            layout = f"{layout} {pages.block_size}"
        head: Line = (
            Run(f"{self.say(f'piece.build.{build}')} ", INK_OF[build]),
            Run(f"{layout}  ", "dim"),
        )
        if pages.reserved_tokens:
            head += (
                Run(f"{self.say('piece.paging.use')} ", "dim"),
                *draw_bar(pages.use, _BAR, INK_OF[build], plain),
                Run(pad(f" {share(pages.use)}", 6), "silver"),
            )
        each = lay_out(len(pages.cells), columns, rows, field.group).each
        said = self._notes(build, field, each)
        here, rest = fit(said, columns - cells(head) - 2)
        there, _ = fit(rest, columns)
        return (*head, Run(f"  {here}", "dim")), there

    def _notes(self, build: BuildName, field: Field, each: int) -> list[str]:
        """What there is to say of a field, the most telling first."""
        say, heard, pages = self.say, field.heard, field.pages
        said: list[str] = []
        if each > 1:
            said.append(say("piece.paging.each", count=each))
        if heard is None:
            tokens = len(pages.cells) * pages.block_size
            if field.measured:
                said.append(say("piece.paging.mean"))
            elif field.planned and pages.count("full") and self.frame.supposed is None:
                said.append(say("piece.paging.formula"))
            return [*said, say("piece.paging.slots", tokens=f"{tokens:,}")]
        counts = {"running": heard.running, "waiting": heard.waiting, "done": heard.finished}
        said.append(say("piece.paging.requests", **counts))
        for source, target in self.frame.measured.fresh.get(build, ())[-1:]:
            said.append(say("piece.paging.copied", source=source, target=target))
        if pages.copies:
            said.append(say("piece.paging.copies", count=pages.copies))
        if heard.hit_tokens:
            said.append(say("piece.paging.hits", count=f"{heard.hit_tokens:,}"))
        if heard.preemptions:
            said.append(say("piece.paging.preempted", count=heard.preemptions))
        return said

    def _field(self, build: BuildName) -> Field | None:
        """What was heard last, what was measured in the mean, or the pool as the formula has it."""
        price = self.frame.prices.get(build)
        plan = price.plan if price is not None else None
        group = slot_blocks(plan) if plan is not None else 0
        heard = self.frame.measured.pages.get(build)
        if heard is not None:
            slotted = heard.pages.layout == "contiguous" and group
            return Field(heard.pages, group if slotted else 0, heard)
        result = self.frame.result
        if result is not None and result.load_pairs:
            config = result.config if build == "candidate" else result.reference_config
            found = build_figures(loads_of(result, build))
            tokens = plan.tokens if plan is not None else 0
            return Field(mean_map(found, config.cache, tokens), 0, measured=True)
        if plan is None:
            return None
        return Field(planned_map(plan, self._expected(build, price)), group, planned=True)

    def _expected(self, build: BuildName, price: Price | None) -> float:
        """Which share of the pool the load fills: what the needle says of the reference while the
        guess is open, what the formula says once it is sealed."""
        if self.frame.supposed is not None:
            return self.frame.supposed / 100 if build == "reference" else 0.0
        if self.frame.veiled or price is None or not price.kv:
            return 0.0
        return price.live / price.kv

    # The lanes

    def _loads(self) -> dict[BuildName, LoadSample] | None:
        """One real load as both builds served it: that of the candidate's typical run."""
        result = self.frame.result
        if result is None or not result.load_pairs:
            return None
        typical = typical_load(loads_of(result, "candidate"))
        pair = next(pair for pair in result.load_pairs if pair.candidate is typical)
        return {"reference": pair.reference, "candidate": pair.candidate}

    def _draw_lanes(self, columns: int, rows: int, plain: bool) -> list[Line]:
        loads = self._loads()
        if loads is None:
            return []
        rows = rows or 24
        seconds = max(load.wall_seconds for load in loads.values())
        beside = columns >= 2 * _LEAST_LANES
        width = (columns - 3) // 2 if beside else columns
        high = rows - 1 if beside else (rows - 1) // 2
        drawn = [
            draw_lanes(load, seconds, width, high, self._lane_head(build, load), plain)
            for build, load in loads.items()
        ]
        if beside:
            lines: list[Line] = [
                (*left, Run("   ", "faint"), *right)
                for left, right in zip(drawn[0], drawn[1], strict=True)
            ]
        else:
            lines = [line for part in drawn for line in part]
        return [*lines, self._lane_legend()]

    def _lane_head(self, build: BuildName, load: LoadSample) -> str:
        name = self.say(f"piece.build.{build}")
        rate = plain_number(load.output_tokens / load.wall_seconds)
        return self.say(
            "piece.lanes.head", build=name, rate=rate, most=load.most_running,
            time=duration(load.wall_seconds),
        )  # fmt: skip

    def _lane_legend(self) -> Line:
        runs: list[Run] = []
        for stretch in STRETCHES:
            runs.append(Run(f"{self.say(f'piece.lanes.{stretch}')}   ", LANE_INK[stretch]))
        runs.append(Run(self.say("piece.lanes.kinds"), "dim"))
        return tuple(runs)


def fit(said: Sequence[str], width: int) -> tuple[str, list[str]]:
    """As many of these, in order, as `width` cells hold on one line; and those left over."""
    kept = ""
    for number, words in enumerate(said):
        longer = f"{kept}  {words}" if kept else words
        if cell_len(longer) > width:
            return kept, list(said[number:])
        kept = longer
    return kept, []


def slot_blocks(plan: CachePlan) -> int:
    """Places of one slot; 0 where the layout has none."""
    return -(-plan.capacity // MAP_CELL) if plan.slots else 0


def planned_map(plan: CachePlan, filled: float = 0.0) -> PageMap:
    """The pool before anything ran: all free, or as much of it held as `filled` (0 to 1) says.

    Slots are then all set aside and each is filled to that share; of blocks, those that hold
    nothing stay free.
    """
    filled = min(filled, 1.0)
    group = slot_blocks(plan)
    if not group:
        full = round(plan.blocks * filled)
        cells = CELL_SIGNS["full"] * full + CELL_SIGNS["free"] * (plan.blocks - full)
        return PageMap("paged", plan.block_size, cells, 0, 0)
    if not filled:
        return PageMap("contiguous", MAP_CELL, CELL_SIGNS["free"] * group * plan.slots, 0, 0)
    full = round(group * filled)
    slot = CELL_SIGNS["full"] * full + CELL_SIGNS["reserved"] * (group - full)
    held = round(plan.tokens * filled)
    return PageMap("contiguous", MAP_CELL, slot * plan.slots, held, plan.tokens)


def mean_map(found: BuildFigures, cache: CacheConfig, tokens: int) -> PageMap:
    """The means of what was held and set aside, of `tokens` in all, as blocks in that order.

    No moment of the run looked so: it is its mean, as large as it was.
    """
    paged = cache.layout == "paged"
    cell = cache.block_size if paged else MAP_CELL
    blocks = max(-(-max(tokens, round(found.reserved_tokens)) // cell), 1)
    aside = min(round(found.reserved_tokens / cell), blocks)
    full = min(round(found.held_tokens / cell), aside)
    return PageMap(
        layout="paged" if paged else "contiguous",
        block_size=cell,
        cells=CELL_SIGNS["full"] * full
        + CELL_SIGNS["reserved"] * (aside - full)
        + CELL_SIGNS["free"] * (blocks - aside),
        held_tokens=round(found.held_tokens),
        reserved_tokens=round(found.reserved_tokens),
        copies=found.copies,
    )
