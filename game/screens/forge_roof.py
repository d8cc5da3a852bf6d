"""The roofline in the forge: where a build could stand by formula, and where the last trial did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.machine import Ceilings
from engine.price import Price
from engine.trial import TrialResult
from game.roof_points import points_at_floor, points_measured, roof
from game.widgets.ink import Line, Run
from game.widgets.roof import RoofWords, draw_roof

Say = Callable[..., str]


def forge_roof(
    say: Say,
    ceilings: Ceilings,
    price: Price,
    last: TrialResult | None,
    width: int,
    rows: int,
    plain: bool,
) -> list[Line]:
    """The last trial stands in small letters, beside what the formula promises."""
    points = points_at_floor(price, ceilings, price.precision)
    legend = [Run(say("forge.roof.floor"), "dim")]
    if last is not None and last.pairs:
        measured = [point for point in points_measured(last) if point.mark.isupper()]
        points += [replace(point, mark=point.mark.lower()) for point in measured]
        legend.append(Run(f"   {say('forge.roof.last')}", "dim"))
    words = RoofWords(
        say("piece.roof.intensity"),
        say("piece.roof.rate"),
        say("piece.roof.bandwidth"),
        say("piece.roof.compute"),
    )
    ceiling = roof(ceilings, price.precision)
    return [*draw_roof([ceiling], points, width, rows - 1, words, plain), tuple(legend)]
