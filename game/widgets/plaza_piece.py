"""Plaza of Two Gates: what a draft gains by its length, and three answers as they were drafted.

First view: speed-up against draft length, the formula's curve with the newest trial's own figures
under the player's trials. While nothing was drafted, or the guess is not sealed, the formula alone:
what was measured would answer the hall's question. Second view: words drafted, accepted, corrected.
"""

from __future__ import annotations

from textual.app import ComposeResult

from engine.draft_report import DraftedText
from game.widgets.cells import clip
from game.widgets.drafted_words import draw_words, text_head
from game.widgets.drawn import Picture
from game.widgets.figures import plain_number, share, times
from game.widgets.hall_piece import HallPiece
from game.widgets.ink import Ink, Line, Run, cells
from game.widgets.speed_view import (
    MARKS,
    Curve,
    Speeds,
    SpeedWords,
    draw_speeds,
    measured_curve,
    supposed_curve,
)
from game.widgets.trial_points import TrialPoint

SUPPOSED = (0.3, 0.6, 0.9)
"""Chances that a drafted token stands, where none was measured."""
_LEAST_CHART = 3
_HEAD_ROWS, _NOTE_ROWS, _LEGEND_ROWS = 4, 7, 9
"""Rows from which on there is room for each line beside the chart."""


class PlazaPiece(HallPiece):
    DEFAULT_CSS = """
    PlazaPiece Picture { height: 1fr; width: 1fr; padding: 0 2; }
    """

    @property
    def two_views(self) -> bool:
        return bool(self._texts())

    def compose(self) -> ComposeResult:
        yield Picture(id="speeds")
        yield Picture(id="texts")

    def set_out(self) -> None:
        super().set_out()
        self.share_room(self.query_one("#speeds"), self.query_one("#texts"))

    def update_piece(self) -> None:
        self.set_out()
        self.query_one("#speeds", Picture).show(self._draw_speeds)
        if self.two_views:
            self.query_one("#texts", Picture).show(self._draw_texts)

    # Speed-up against length

    def _points(self) -> tuple[TrialPoint, ...]:
        return () if self.frame.veiled else self.frame.drafts

    def _draw_speeds(self, columns: int, rows: int, plain: bool) -> list[Line]:
        rows = rows or 16
        points, say = self._points(), self.say
        bound = self.frame.goals.get("tpot_ratio")
        goal = 1 / bound if bound else None
        curves, note = self._curves()
        above = [self._head(columns)] if rows >= _HEAD_ROWS else []
        below: list[Line] = [(Run(clip(note, columns), "dim"),)] if rows >= _NOTE_ROWS else []
        if points and rows >= _LEGEND_ROWS:
            below = [self._legend(columns), *below]
        words = SpeedWords(
            gain=say("piece.plaza.gain"),
            length=say("piece.plaza.length"),
            even=say("piece.plaza.even"),
            goal="" if goal is None else say("piece.plaza.goal", gain=plain_number(goal)),
        )
        room = max(rows - len(above) - len(below), _LEAST_CHART)
        chart = draw_speeds(Speeds(points, curves, goal), words, columns, room, plain)
        return [*above, *chart, *below]

    def _curves(self) -> tuple[tuple[Curve, ...], str]:
        """With the newest trial's own figures where it has them, else for three chances by formula
        alone; and what is said of them."""
        points = self._points()
        longest = Speeds(points, ()).longest
        newest = points[-1] if points else None
        chance, costs = (newest.chance, newest.costs) if newest is not None else (None, None)
        if chance is not None and costs is not None:
            said = self.say(
                "piece.plaza.measured",
                chance=plain_number(chance, 2),
                cost=plain_number(costs.token, 2),
                verify=plain_number(costs.verify, 2),
            )
            return (measured_curve(chance, costs, longest),), said
        cost = self.frame.draft_cost
        names = {one: self.say("piece.plaza.chance", chance=plain_number(one)) for one in SUPPOSED}
        found = tuple(supposed_curve(one, cost or 0.0, names[one], longest) for one in SUPPOSED)
        if cost is None:
            return found, self.say("piece.plaza.formula.free")
        return found, self.say("piece.plaza.formula", cost=plain_number(cost, 2))

    def _head(self, columns: int) -> Line:
        """The newest trial in figures; before any, what the picture will hold."""
        points, say = self._points(), self.say
        if not points:
            veiled = self.frame.veiled and bool(self.frame.drafts)
            said = say("piece.plaza.veiled" if veiled else "piece.plaza.none")
            return (Run(clip(said, columns), "dim"),)
        newest = points[-1]
        said = say(
            "piece.plaza.newest",
            count=len(points),
            kind=say(f"knob.value.{newest.kind}"),
            length=newest.length,
            gain=times(newest.speed_up),
            state=say(f"piece.plaza.{newest.mark}"),
        )
        if newest.acceptance_rate is not None:
            said += say("piece.plaza.stood", rate=share(newest.acceptance_rate))
        return (Run(clip(said, columns), "silver"),)

    def _legend(self, columns: int) -> Line:
        """The marks that stand there."""
        here = {point.mark for point in self._points()}
        entries: list[tuple[str, Ink, str]] = [
            (sign, ink, self.say(f"piece.plaza.{mark}"))
            for mark, (sign, ink) in MARKS.items()
            if mark in here
        ]
        entries.append(("( )", "silver", self.say("piece.plaza.last")))
        runs: list[Run] = []
        for sign, ink, word in entries:
            gap = "   " if runs else ""
            room = columns - cells(tuple(runs)) - len(gap) - len(sign) - 1
            if room > 6:
                runs += [Run(gap + sign, ink), Run(" " + clip(word, room), "dim")]
        return tuple(runs)

    # Words as they were drafted

    def _texts(self) -> tuple[DraftedText, ...]:
        result = self.frame.result
        report = result.draft if result is not None and not self.frame.veiled else None
        return report.texts if report is not None else ()

    def _draw_texts(self, columns: int, rows: int, plain: bool) -> list[Line]:
        """Each text under its head; where lines are few, each has as many as its neighbours."""
        rows = rows or 20
        texts = self._texts()[: max(rows // 2, 1)]
        legend: list[Line] = []
        if rows >= 3 * len(texts):
            legend = [(Run(clip(self.say("detail.draft.legend"), columns), "dim"),)]
        needs = [len(draw_words(text.pieces, columns)) for text in texts]
        room = rows - len(texts) - len(legend)
        gap: list[Line] = [()] if sum(needs) + len(texts) <= room else []
        lines: list[Line] = []
        for text, most in zip(texts, _shared(room, needs), strict=True):
            lines.append((Run(clip(text_head(self.say, text), columns), "bronze"),))
            lines += [*draw_words(text.pieces, columns, most), *gap]
        return [*lines, *legend]


def _shared(rows: int, needs: list[int]) -> list[int]:
    """`rows` among texts that need so many: what the shortest leave goes to the rest."""
    given = [0] * len(needs)
    order = sorted(range(len(needs)), key=lambda at: needs[at])
    for place, at in enumerate(order):
        given[at] = min(needs[at], max(rows, 0) // (len(needs) - place))
        rows -= given[at]
    return given
