"""Build -> EngineConfig: a pure step that also says why each automatic choice was made."""

from __future__ import annotations

import msgspec

from engine.cache_plan import CachePlan
from engine.capabilities import Capabilities
from engine.config import Build, EngineConfig, complete
from engine.knobs import KNOBS, KnobError, Value
from engine.legality import Limits, check_layout, check_lengths, check_memory
from engine.load import request_count
from engine.model.config import ModelConfig

_BY_LENGTHS, _BY_LAYOUT = "workload.prompt", "cache.block_size"
"""Knobs whose bound depends on others: `engine.legality` refuses them, with the nearest value."""


class Resolved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The config that will run, and knob name -> reason for what was chosen automatically."""

    config: EngineConfig
    reasons: dict[str, str]


def resolve(
    build: Build,
    capabilities: Capabilities,
    model: ModelConfig,
    calibrated_threads: int | None = None,
) -> Resolved:
    """Turn knob positions into the config that will run on this machine, with this model.

    A build whose batch does not fit its vessel is taken, as long as one request does: it waits, or
    it floods.

    Raises:
        KnobError: a value this machine or model cannot take, or values that do not go together,
            naming what would fit.
    """
    positions = complete(build)
    for name, value in positions.items():
        if name in (_BY_LENGTHS, _BY_LAYOUT):
            continue
        reason = KNOBS[name].unavailable(value, capabilities, model)
        if reason:
            shown = KNOBS[name].domain.show(value)
            raise KnobError(f"{name}={shown} cannot run here: {reason}")
    reasons: dict[str, str] = {}
    threads = int(positions["run.threads"])
    if threads == 0:
        threads = calibrated_threads or capabilities.physical_cores
        reasons["run.threads"] = (
            f"{threads}: fastest when this machine was calibrated"
            if calibrated_threads
            else f"{threads}: the physical cores (not calibrated yet)"
        )
    config = _config(positions | {"run.threads": threads})
    check_lengths(config, model)
    check_layout(config, model)
    plan = check_memory(config, Limits.of(model, capabilities))
    seats = _seats(config, plan)
    if seats is not None:
        reasons["schedule.batch"] = seats
    return Resolved(config=config, reasons=reasons)


def _config(positions: dict[str, Value]) -> EngineConfig:
    sections: dict[str, dict[str, Value]] = {}
    for name, value in positions.items():
        section, key = name.split(".")
        sections.setdefault(section, {})[key] = value
    return msgspec.convert(sections, EngineConfig)


def _seats(config: EngineConfig, plan: CachePlan) -> str | None:
    """Why fewer requests than asked will run at once; None where all can, or where that breaks."""
    asked = min(config.schedule.batch, request_count(config))
    if config.memory.overflow == "break" or plan.requests >= asked:
        return None
    if plan.layout == "contiguous":
        return f"{plan.requests} of {asked} requests fit the vessel at once"
    longest = f"{plan.requests} of {asked} requests of the longest length"
    return f"{plan.blocks} blocks of {plan.block_size} tokens fit the vessel: {longest} at once"
