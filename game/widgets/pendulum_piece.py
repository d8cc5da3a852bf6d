"""Twin Pendulum: the rods of both builds, and the roofline with both phases on it."""

from __future__ import annotations

from textual.app import ComposeResult

from game.measured import BuildName, Rates
from game.roof_points import points_measured, points_so_far, roof
from game.widgets.drawn import Picture
from game.widgets.figures import plain_number, times
from game.widgets.hall_piece import HallPiece
from game.widgets.ink import Line, Run
from game.widgets.pendulum import PAIR_COLUMNS, Pendulum, Twin
from game.widgets.roof import Point, Roof, RoofWords, draw_roof
from game.widgets.swing import Rhythm


class PendulumPiece(HallPiece):
    DEFAULT_CSS = """
    PendulumPiece Picture { height: 1fr; width: 1fr; padding: 0 2; }
    """

    @property
    def two_views(self) -> bool:
        return self._roof_known

    def compose(self) -> ComposeResult:
        yield Pendulum()
        yield Picture(id="roofline")

    def set_out(self) -> None:
        super().set_out()
        self.share_room(self.query_one(Pendulum), self.query_one(Picture))

    @property
    def _roof_known(self) -> bool:
        return self.frame.ceilings is not None and bool(self._points())

    def update_piece(self) -> None:
        self.set_out()
        pendulum = self.query_one(Pendulum)
        pendulum.show(self._twins())
        pendulum.set_pace(self.pace)
        if self._roof_known:
            self.query_one(Picture).show(self._draw_roof)

    # The rods

    def _order(self) -> tuple[BuildName, ...]:
        """The build on the clock first; at rest the reference, whose ratio is the question."""
        if self.frame.measured.now == "candidate":
            return ("candidate", "reference")
        return ("reference", "candidate")

    def _twins(self) -> list[Twin]:
        known = self.frame.measured
        shown = [build for build in self._order() if known.rates(build) != Rates()]
        order: tuple[BuildName, ...] = ("reference", "candidate")
        if len(shown) == 2 and self.query_one(Pendulum).size.width >= 2 * PAIR_COLUMNS:
            # Side by side they keep their places, whichever is on the clock.
            shown = list(order)
        return [self._twin(build) for build in shown or [order[0]]]

    def _twin(self, build: BuildName) -> Twin:
        rates = self.frame.measured.rates(build)
        name = self.say(f"piece.build.{build}")
        if rates == Rates():
            nothing = self.say("piece.unmeasured")
            return Twin(
                rates,
                (self.say("piece.phase.prefill"), nothing),
                (self.say("piece.phase.decode"), nothing),
                (),
            )
        middle = [name]
        if rates.prefill and rates.decode:
            ratio = rates.ratio or Rhythm(rates.prefill, rates.decode).ratio
            middle = [self.say("piece.ratio", ratio=times(ratio)), name]
        return Twin(
            rates,
            (self.say("piece.phase.prefill"), self._cost(rates.prefill)),
            (self.say("piece.phase.decode"), self._cost(rates.decode)),
            middle,
        )

    def _cost(self, seconds: float | None) -> str:
        if seconds is None:
            return self.say("piece.unmeasured")
        # One unit for both rods, so that they can be compared at a glance.
        return self.say("piece.per_token", time=f"{plain_number(seconds * 1e3)} ms")

    # The roofline

    def _points(self) -> list[Point]:
        frame = self.frame
        if frame.result is not None and frame.result.pairs:
            return points_measured(frame.result)
        found: list[Point] = []
        for build in ("candidate", "reference"):
            name: BuildName = "candidate" if build == "candidate" else "reference"
            if name in frame.work and name in frame.shape:
                batch, prompt, _ = frame.shape[name]
                rates = frame.measured.rates(name)
                found += points_so_far(name, frame.work[name], rates, batch, prompt)
        return found

    def _roofs(self) -> list[Roof]:
        ceilings = self.frame.ceilings
        assert ceilings is not None
        names = [self.frame.precision.get(build) for build in ("candidate", "reference")]
        precisions = dict.fromkeys(name for name in names if name)
        return [roof(ceilings, name) for name in precisions] or [roof(ceilings, "float32")]

    def _draw_roof(self, columns: int, rows: int, plain: bool) -> list[Line]:
        rows = rows or 14
        points = self._points()
        legend: list[Run] = []
        for point in points:
            build = "candidate" if point.mark.isupper() else "reference"
            phase = "prefill" if point.mark.upper() == "P" else "decode"
            words = f"{self.say(f'piece.phase.{phase}')}, {self.say(f'piece.build.{build}')}"
            legend += [Run(point.mark, point.ink), Run(f" {words}   ", "dim")]
        lines = draw_roof(self._roofs(), points, columns, rows - 1, self._words(), plain)
        return [*lines, tuple(legend)]

    def _words(self) -> RoofWords:
        return RoofWords(
            intensity=self.say("piece.roof.intensity"),
            rate=self.say("piece.roof.rate"),
            bandwidth=self.say("piece.roof.bandwidth"),
            compute=self.say("piece.roof.compute"),
        )
