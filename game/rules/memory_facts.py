"""Facts of memory: what a build will take of the vessel, and what its trial held, wasted or spilt.

Every function leaves out what it cannot tell; `game.rules.facts` rounds and names-checks the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean, median_high

import msgspec

from engine.cache_plan import token_bytes, vessel_bytes
from engine.capabilities import Capabilities
from engine.config import EngineConfig, complete
from engine.domains import KnobError, Value
from engine.fit import fit_cache
from engine.knobs import KNOBS
from engine.load_metrics import waste_tokens
from engine.model.config import ModelConfig
from engine.precision import element_bytes
from engine.price import price, price_on
from engine.trial import Flood, LoadSample, TrialResult
from story.facts import FactValue

Facts = dict[str, FactValue]
_MOST_SEATS = 64


def build_config(positions: Mapping[str, Value]) -> EngineConfig | None:
    """The config of knob positions, not resolved for any machine; None for what cannot be."""
    try:
        whole = complete(positions)
    except KnobError:
        return None
    sections: dict[str, dict[str, Value]] = {}
    for name, value in whole.items():
        section, key = name.split(".")
        sections.setdefault(section, {})[key] = value
    return msgspec.convert(sections, EngineConfig)


def build_facts(positions: Mapping[str, Value]) -> Facts:
    """What the build says by itself, known before any machine is."""

    def number(name: str) -> int:
        return int(positions.get(name, KNOBS[name].default))

    bits = number("cache.bits")
    return {
        "kv_bits": KNOBS["cache.bits"].domain.show(bits),
        "layout": str(positions.get("cache.layout", KNOBS["cache.layout"].default)),
        "block_size": number("cache.block_size"),
        "sharing": str(positions.get("cache.prefix_sharing", "off")),
        "requests": number("workload.requests") or number("schedule.batch"),
        "system_tokens": number("workload.system"),
    }


def room_facts(
    config: EngineConfig | None, model: ModelConfig, machine: Capabilities | None = None
) -> Facts:
    """By formula, for this model: the vessel, the build in it, the slots that it would hold.

    In the kernel forms of `machine`; where it is not known, packed at full width.
    """
    facts: Facts = {"heads": model.heads, "kv_heads": model.kv_heads}
    if model.kv_heads:
        facts["gqa_factor"] = model.heads // model.kv_heads
    if config is None:
        return facts
    vessel = vessel_bytes(config, model)
    if vessel is not None:
        facts["vessel_mb"] = vessel / 1e6
    try:
        size = element_bytes(config.run.precision)
        facts["kv_kb_token"] = token_bytes(config, model, size) / 1e3
        cost = price(config, model) if machine is None else price_on(config, model, machine)
        facts["predicted_mb"] = cost.total / 1e6
        if vessel is not None:
            forms = machine.low_bit_forms.get(config.run.precision, ()) if machine else ()
            plan = fit_cache(_in_slots(config), model, cost.weights, forms=forms)
            facts["slots"] = plan.slots
    except ValueError:  # a build that cannot be; the forge says why
        pass
    return facts


def held_facts(result: TrialResult) -> Facts:
    """The candidate's account in its trial, flooded or not."""
    facts: Facts = {"memory_mb": result.memory.allocated_bytes / 1e6}
    ledger = result.flood.ledger if result.flood is not None else result.ledger
    if ledger is not None:
        facts["held_mb"] = ledger.held_bytes / 1e6
    if result.flood is not None:
        facts |= _flood_facts(result.flood)
    return facts


def served_facts(result: TrialResult) -> Facts:
    """What the loads of a served trial had in common: medians of counts, means of means."""
    loads = [pair.candidate for pair in result.load_pairs]
    if not loads:
        return {}
    facts: Facts = {
        "preemptions": _middle(loads, lambda load: load.preemptions),
        "recomputed_tokens": _middle(loads, lambda load: load.recomputed_tokens),
        "copies": _middle(loads, lambda load: load.copies),
        "most_running": _middle(loads, lambda load: load.most_running),
        "reference_running": _middle(
            [pair.reference for pair in result.load_pairs], lambda load: load.most_running
        ),
    }
    counted = [load for load in loads if load.mean_running > 0]
    if counted:
        facts["waste_tokens"] = fmean(waste_tokens(load) for load in counted)
    return facts


def _flood_facts(flood: Flood) -> Facts:
    return {
        "live_tokens": flood.ledger.live_tokens,
        "flood_running": flood.running,
        "flood_asked_mb": flood.asked_bytes / 1e6,
        "flood_over_mb": (flood.asked_bytes - flood.free_bytes) / 1e6,
        "flood_fits": flood.fits,
    }


def _middle(loads: list[LoadSample], count: Callable[[LoadSample], int]) -> int:
    return median_high(count(load) for load in loads)


def _in_slots(config: EngineConfig) -> EngineConfig:
    """The same requests in a contiguous cache, as many at once as the vessel holds."""
    replace = msgspec.structs.replace
    return replace(
        config,
        cache=replace(config.cache, layout="contiguous", prefix_sharing="off"),
        schedule=replace(config.schedule, batch=_MOST_SEATS),
    )
