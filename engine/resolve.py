"""Build -> EngineConfig: a pure step that also says why each automatic choice was made."""

from __future__ import annotations

import msgspec

from engine.capabilities import Capabilities
from engine.config import Build, EngineConfig, complete
from engine.knobs import KNOBS, KnobError, Value
from engine.model.config import ModelConfig


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
