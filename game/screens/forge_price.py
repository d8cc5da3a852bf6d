"""The price of a build as the forge tells it: memory, against the vessel where there is one, then
what each phase must at least take."""

from __future__ import annotations

from collections.abc import Callable

from engine.fit import weight_elements
from engine.machine import Ceilings
from engine.model.config import ModelConfig
from engine.price import Price
from engine.trial import TrialResult
from game.widgets.cells import clip
from game.widgets.figures import plain_number, size
from game.widgets.ink import Ink, Line, Run
from game.widgets.price_panel import (
    PriceWords,
    VesselWords,
    draw_least,
    draw_memory,
    draw_phase,
    draw_vessel,
    flow,
)
from game.widgets.typesetting import paragraph
from story.schema import Stage

Say = Callable[..., str]


def price_words(say: Say) -> PriceWords:
    return PriceWords(
        memory=say("forge.price.memory"),
        parts={
            part: say(f"forge.part.{part}")
            for part in ("weights", "kv", "activations", "scratch", "draft")
        },
        decode=say("forge.price.decode"),
        prefill=say("forge.price.prefill"),
        limits={
            "bandwidth": say("forge.limit.bandwidth"),
            "compute": say("forge.limit.compute"),
            "launch": say("forge.limit.launch"),
        },
        at_least=say("forge.price.at_least"),
        unmeasured=say("forge.price.unmeasured"),
    )


def draw_price(
    say: Say,
    stage: Stage,
    price: Price,
    reference: float,
    ceilings: Ceilings | None,
    width: int,
    plain: bool,
    brief: bool,
) -> list[Line]:
    """Every line of `width` cells at most; `brief` leaves the limits of each phase away.

    Without a vessel the bar is as long as the `reference` build's bytes, so that growth is seen.
    """
    words = price_words(say)
    if price.vessel is None:
        whole = max(float(price.total), reference)
        lines = draw_memory(price.parts, whole, words, width, plain)
    else:
        lines = _vessel(say, stage, price, price.vessel, words, width, plain)
    if brief:
        return lines + draw_least(price, ceilings, words, width)
    for head, work in ((words.decode, price.decode), (words.prefill, price.prefill)):
        lines += draw_phase(head, work, ceilings, price.precision, words, width, plain)
    return lines


def draw_weights(
    say: Say, price: Price, model: ModelConfig, last: TrialResult | None, width: int
) -> list[Line]:
    """The weights against their 16 bits, by formula; of the last trial, as they were allocated.

    Second copies count, as they do in the metrics `weight_share` and `average_bits`.
    """
    bits = 8 * price.weights / weight_elements(model)
    lines = flow(
        [
            Run(say("forge.part.share", share=plain_number(100 * bits / 16)), "text"),
            Run(say("forge.part.bits", bits=plain_number(bits)), "strong"),
        ],
        width,
    )
    held = last.memory.allocated.get("weights", 0) if last is not None else 0
    if last is None or not held or not last.memory.weight_elements:
        return lines
    told = say(
        "forge.last.weights",
        size=size(held),
        bits=plain_number(8 * held / last.memory.weight_elements),
    )
    return lines + paragraph(told, width, "silver")


def asked_beyond(price: Price) -> int:
    """Bytes of keys and values that the workload wants and the cache cannot give."""
    return max(price.live - price.kv, 0)


def live_tokens(price: Price) -> int:
    """Tokens that the workload would have in the cache at once."""
    return price.live // price.plan.token_bytes


def _vessel(
    say: Say, stage: Stage, price: Price, vessel: int, words: PriceWords, width: int, plain: bool
) -> list[Line]:
    asked = asked_beyond(price)
    vessel_words = VesselWords(
        of=say("forge.vessel.of", total=size(price.total + asked), vessel=size(vessel)),
        over=say("forge.vessel.over"),
    )
    lines = draw_vessel(price.parts, asked, vessel, words, vessel_words, width, plain)
    lines.append((Run(clip(_cache_words(say, price), width), "text"),))
    goal = next((goal for goal in stage.goals if goal.metric == "live_tokens"), None)
    if goal is not None:
        tokens = live_tokens(price)
        enough = tokens >= goal.bound
        ink: Ink = "danger" if asked else "wall" if enough else "dim"
        told = say("forge.live", tokens=f"{tokens:,}", goal=f"{goal.bound:,.0f}")
        lines.append((Run(clip(told, width), ink),))
    return lines


def _cache_words(say: Say, price: Price) -> str:
    """How the cache is cut: slots of the longest request, or blocks; and the tokens it takes."""
    plan = price.plan
    if plan.layout == "paged":
        return say(
            "forge.cache.blocks",
            blocks=f"{plan.blocks:,}",
            size=plan.block_size,
            tokens=f"{plan.tokens:,}",
        )
    return say(
        "forge.cache.slots",
        slots=f"{plan.slots:,}",
        size=f"{plan.capacity:,}",
        tokens=f"{plan.tokens:,}",
    )
