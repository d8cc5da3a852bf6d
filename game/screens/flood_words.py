"""A broken vessel in figures: the account of the moment in which it broke."""

from __future__ import annotations

from collections.abc import Callable

from engine.trial import Flood
from game.widgets.figures import size
from game.widgets.ink import Run
from game.widgets.price_panel import PART_INK

Say = Callable[..., str]
_LEAST_BYTES = 1000  # a part below a kilobyte says nothing


def flood_figures(say: Say, flood: Flood) -> list[Run]:
    """The vessel, every part, what was free and what was asked, the tokens held."""
    account = flood.ledger
    found = [
        Run(f"{say(f'forge.part.{name}')} {size(amount)}", PART_INK.get(name, "dim"))
        for name, amount in account.parts.items()
        if amount >= _LEAST_BYTES
    ]
    if account.budget is not None:
        found.insert(0, Run(say("flood.vessel", size=size(account.budget)), "strong"))
    return [
        *found,
        Run(say("flood.free", size=size(flood.free_bytes)), "text"),
        Run(say("flood.asked", size=size(flood.asked_bytes)), "danger"),
        Run(say("flood.live", tokens=f"{account.live_tokens:,}"), "silver"),
    ]
