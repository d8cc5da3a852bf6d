"""Build -> EngineConfig: a pure step that also says why each automatic choice was made."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from engine.capabilities import Capabilities
from engine.knobs import KNOBS, KnobError, Value, nearest_knob
from engine.model.config import ModelConfig

Build = Mapping[str, Value]
"""Knob name -> position, for the knobs a player set; the rest stand at their defaults."""


class WorkloadConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    prompt: int = 128
    output: int = 24


class ScheduleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`prefill_chunk` 0 means the whole prompt in one pass."""

    batch: int = 1
    prefill_chunk: int = 0


class RunConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    precision: str = "float32"
    threads: int = 1


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    workload: WorkloadConfig = msgspec.field(default_factory=WorkloadConfig)
    schedule: ScheduleConfig = msgspec.field(default_factory=ScheduleConfig)
    run: RunConfig = msgspec.field(default_factory=RunConfig)


class Resolved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The config that will run, and knob name -> reason for what was chosen automatically."""

    config: EngineConfig
    reasons: dict[str, str]


def complete(build: Build) -> dict[str, Value]:
    """Every knob's position: the player's where set, the default elsewhere.

    Raises:
        KnobError: an unknown knob or an illegal value.
    """
    positions: dict[str, Value] = {name: knob.default for name, knob in KNOBS.items()}
    for name, value in build.items():
        if name not in KNOBS:
            raise KnobError(f"no knob is named {name!r}; nearest: {nearest_knob(name)}")
        try:
            positions[name] = KNOBS[name].domain.check(value)
        except KnobError as error:
            raise KnobError(f"{name}: {error}") from None
    return positions


def resolve(
    build: Build,
    capabilities: Capabilities,
    model: ModelConfig,
    calibrated_threads: int | None = None,
) -> Resolved:
    """Turn knob positions into the config that will run on this machine, with this model.

    Raises:
        KnobError: a value this machine or model cannot take, naming what would fit.
    """
    positions = complete(build)
    for name, value in positions.items():
        reason = KNOBS[name].unavailable(value, capabilities, model)
        if reason:
            shown = KNOBS[name].domain.show(value)
            raise KnobError(f"{name}={shown} cannot run here: {reason}")
    need = int(positions["workload.prompt"]) + int(positions["workload.output"])
    if need > model.context:
        fits = model.context - int(positions["workload.output"])
        raise KnobError(
            f"workload.prompt + workload.output is {need} tokens and the model's context is "
            f"{model.context}; nearest: workload.prompt={max(fits, 1)}"
        )
    reasons: dict[str, str] = {}
    threads = int(positions["run.threads"])
    if threads == 0:
        threads = calibrated_threads or capabilities.physical_cores
        reasons["run.threads"] = (
            f"{threads}: fastest when this machine was calibrated"
            if calibrated_threads
            else f"{threads}: the physical cores (not calibrated yet)"
        )
    sections: dict[str, dict[str, Value]] = {}
    for name, value in positions.items():
        section, key = name.split(".")
        sections.setdefault(section, {})[key] = value
    sections["run"]["threads"] = threads
    return Resolved(config=msgspec.convert(sections, EngineConfig), reasons=reasons)
