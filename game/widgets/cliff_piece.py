"""Precision Wall: the cliff with the player's footholds, and what is lost along a text.

First view: loss against bits. The rock is what a trial measured of plain rounding; it stays veiled
until the guess is sealed. Second view: the loss by position of the newest trial, and the width of
every kind of matrix by formula.
"""

from __future__ import annotations

from textual.app import ComposeResult

from engine.quality_report import Quality
from game.rules.cliff import CLIFF_KL
from game.widgets.cells import clip
from game.widgets.cliff_view import MARKS, RUNG, Cliff, CliffWords, draw_cliff
from game.widgets.drawn import Picture
from game.widgets.figures import plain_number
from game.widgets.footholds import Hold
from game.widgets.hall_piece import HallPiece
from game.widgets.ink import Ink, Line, Run, cells
from game.widgets.kept import KINDS
from game.widgets.kind_bars import KindWords, draw_kinds
from game.widgets.position_view import draw_positions

_LEAST_CHART = 4
_MOST_CHART = 14


class CliffPiece(HallPiece):
    DEFAULT_CSS = """
    CliffPiece Picture { height: 1fr; width: 1fr; padding: 0 2; }
    """

    @property
    def two_views(self) -> bool:
        return self.frame.keeping is not None or self._quality() is not None

    def compose(self) -> ComposeResult:
        yield Picture(id="cliff")
        yield Picture(id="positions")

    def set_out(self) -> None:
        super().set_out()
        self.share_room(self.query_one("#cliff"), self.query_one("#positions"))

    def update_piece(self) -> None:
        self.set_out()
        self.query_one("#cliff", Picture).show(self._draw_cliff)
        if self.two_views:
            self.query_one("#positions", Picture).show(self._draw_second)

    # The cliff

    def _draw_cliff(self, columns: int, rows: int, plain: bool) -> list[Line]:
        rows = rows or 16
        frame, say = self.frame, self.say
        rungs = () if frame.veiled else frame.rungs
        goal_kl, goal_bits = frame.goals.get("kl"), frame.goals.get("average_bits")
        cliff = Cliff(frame.footholds, rungs, CLIFF_KL, goal_kl, goal_bits)
        goals = ""
        if goal_kl is not None and goal_bits is not None:
            goals = say("piece.cliff.goals", bits=plain_number(goal_bits), kl=plain_number(goal_kl))
        words = CliffWords(
            kl=say("piece.cliff.kl"),
            bits=say("piece.cliff.bits"),
            edge=say("piece.cliff.edge", kl=plain_number(CLIFF_KL)),
            goals=goals,
        )
        drawn = draw_cliff(cliff, words, columns, max(rows - 2, 3), plain)
        return [self._head(columns), *drawn, self._legend(columns)]

    def _head(self, columns: int) -> Line:
        """The newest trial in figures; before any, what the picture will hold."""
        if not self.frame.footholds:
            return (Run(clip(self.say("piece.cliff.none"), columns), "dim"),)
        newest = self.frame.footholds[-1]
        said = self.say(
            "piece.cliff.newest",
            count=len(self.frame.footholds),
            bits=plain_number(newest.bits),
            kl=plain_number(newest.kl),
            state=self.say(f"piece.cliff.{newest.hold}"),
        )
        return (Run(clip(said, columns), "silver"),)

    def _legend(self, columns: int) -> Line:
        """The marks that stand there, and what is known of the rock."""
        here = {foothold.hold for foothold in self.frame.footholds}
        entries: list[tuple[str, Ink, str]] = []
        hold: Hold
        for hold, (sign, ink) in MARKS.items():
            if hold in here:
                entries.append((sign, ink, self.say(f"piece.cliff.{hold}")))
        if self.frame.footholds:
            entries.append(("( )", "silver", self.say("piece.cliff.last")))
        rock = "rock" if self.frame.rungs else "unmeasured"
        rock = "veiled" if self.frame.veiled else rock
        entries.append((RUNG, "bronze", self.say(f"piece.cliff.{rock}")))
        runs: list[Run] = []
        for sign, ink, word in entries:
            gap = "   " if runs else ""
            room = columns - cells(tuple(runs)) - len(gap) - len(sign) - 1
            if room > 6:
                runs += [Run(gap + sign, ink), Run(" " + clip(word, room), "dim")]
        return tuple(runs)

    # Along the text, and by kind

    def _quality(self) -> Quality | None:
        result = self.frame.result
        quality = result.quality if result is not None else None
        return quality if quality is not None and quality.kl_by_position else None

    def _draw_second(self, columns: int, rows: int, plain: bool) -> list[Line]:
        rows = rows or 20
        kinds = self._draw_kinds(columns, plain)
        quality = self._quality()
        room = min(rows - len(kinds) - 1, _MOST_CHART)
        if quality is None:
            said: Line = (Run(clip(self.say("piece.cliff.no_positions"), columns), "dim"),)
            return [said, (), *kinds]
        title: Line = (Run(clip(self.say("piece.cliff.positions"), columns), "bronze"),)
        if room < _LEAST_CHART:
            return [title, *kinds]
        word = self.say("piece.cliff.position")
        chart = draw_positions(
            quality.kl_by_position, quality.position_tokens, word, columns, room, plain
        )
        return [title, *chart, *kinds]

    def _draw_kinds(self, columns: int, plain: bool) -> list[Line]:
        keeping, say = self.frame.keeping, self.say
        if keeping is None:
            return []
        words = KindWords(
            kinds={kind: say(f"piece.cliff.kind.{kind}") for kind in KINDS},
            bits=lambda bits: say("piece.cliff.width", bits=bits),
            group=lambda group: say("piece.cliff.group", group=group),
            row=say("piece.cliff.row"),
            of_all=lambda part: say("piece.cliff.of_all", share=part),
            as_rest=say("piece.cliff.as_rest"),
        )
        head: Line = (Run(clip(say("piece.cliff.kinds"), columns), "bronze"),)
        return [head, *draw_kinds(keeping, words, columns, plain)]
