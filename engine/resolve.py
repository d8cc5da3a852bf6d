"""Build -> EngineConfig: a pure step that also says why each automatic choice was made."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from engine.cache_plan import CachePlan
from engine.capabilities import Capabilities
from engine.config import Build, EngineConfig, complete
from engine.domains import IntDomain, KnobError, Value
from engine.drafters import NO_OTHERS, Drafters, cost_ratio, exit_layers
from engine.knobs import KNOBS
from engine.legality import (
    Limits,
    check_draft,
    check_layout,
    check_lengths,
    check_memory,
    check_weights,
)
from engine.load import request_count
from engine.model.config import ModelConfig
from engine.recipe import FULL, inner_widths, matrices, recipe_of
from engine.weight_format import ROW, Scheme

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
    drafters: Drafters = NO_OTHERS,
) -> Resolved:
    """Turn knob positions into the config that will run on this machine, with this model and what
    can draft for it.

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
        near = _nearest_width(name, value, capabilities)
        if name == "draft.kind" and not reason:
            reason, near = drafters.why_not(str(value)), "; nearest: draft.kind=self4"
        if reason:
            shown = KNOBS[name].domain.show(value)
            raise KnobError(f"{name}={shown} cannot run here: {reason}{near}")
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
    check_weights(config, model)
    check_draft(config, model)
    plan = check_memory(config, Limits.of(model, capabilities, drafters))
    seats = _seats(config, plan)
    if seats is not None:
        reasons["schedule.batch"] = seats
    reasons |= weight_reasons(config, model)
    forms = capabilities.low_bit_forms.get(config.run.precision, ())
    reasons |= draft_reasons(config, model, drafters, forms)
    return Resolved(config=config, reasons=reasons)


def _config(positions: dict[str, Value]) -> EngineConfig:
    sections: dict[str, dict[str, Value]] = {}
    for name, value in positions.items():
        section, key = name.split(".")
        sections.setdefault(section, {})[key] = value
    return msgspec.convert(sections, EngineConfig)


def _nearest_width(name: str, value: Value, capabilities: Capabilities) -> str:
    """`; nearest: weights.bits=4`: where a width has no kernel here, the closest that has one."""
    domain = KNOBS[name].domain
    if not name.startswith("weights.") or not isinstance(domain, IntDomain):
        return ""
    widths = [
        width
        for width in domain.ladder
        if width not in (0, FULL, value) and not capabilities.weight_bits.get(str(width))
    ]
    # As far from it below and above: the wider, which keeps more.
    near = min(widths, key=lambda width: (abs(width - int(value)), -width), default=0)
    return f"; nearest: {name}={domain.show(near)}"


def weight_reasons(config: EngineConfig, model: ModelConfig) -> dict[str, str]:
    """Knob name -> why quantisation's automatic choices are what they are, and what does nothing
    or is likely to fail."""
    weights, reasons = config.weights, dict[str, str]()
    recipe = recipe_of(weights, model)
    found = [matrix for matrix in matrices(recipe, model) if matrix.scheme is not None]
    schemes = {matrix.scheme for matrix in found if matrix.scheme is not None}
    if weights.group == 0 and schemes:
        reasons["weights.group"] = _groups(schemes) + ": what the kernels of a width like"
    if weights.embedding == 0 and recipe.embedding is not None:
        reasons["weights.embedding"] = (
            f"{recipe.embedding.bits} bits: every word passes through it, in and out"
        )
    inner = any(matrix.layer is not None for matrix in found)
    if not inner and weights.method != "rtn":
        reasons["weights.method"] = (
            f"no layer is quantised, so {weights.method} has nothing to do; set weights.bits"
        )
    widest = max(inner_widths(model))
    if inner and 0 < recipe.calibration < widest:
        reasons["weights.calibration"] = (
            f"{recipe.calibration} tokens cannot tell apart the {widest} inputs of the widest "
            f"matrix: {weights.method} may do worse than rounding; from {widest} on it can"
        )
    return reasons


def draft_reasons(
    config: EngineConfig, model: ModelConfig, drafters: Drafters, forms: Collection[str]
) -> dict[str, str]:
    """Knob name -> what of a draft was chosen automatically, does nothing, or cannot pay."""
    draft, reasons = config.draft, dict[str, str]()
    if draft.kind == "exit" and draft.exit_layer == 0:
        layers = exit_layers(draft, model.layers)
        reasons["draft.exit_layer"] = f"{layers} of {model.layers} layers: nine in ten"
    ratio = cost_ratio(config, model, drafters, forms)
    if ratio >= 1:
        reasons["draft.kind"] = (
            f"a drafted token reads {ratio:.2f} times the weights of a step of the model itself: "
            "where bytes bind, no such draft can pay"
        )
    return reasons


def _groups(schemes: Collection[Scheme]) -> str:
    """ "8 bits by the row, 4 bits in groups of 64": each width once, the widest first."""
    by_width = {scheme.bits: scheme.group for scheme in schemes}
    return ", ".join(
        f"{bits} bits " + ("by the row" if group == ROW else f"in groups of {group}")
        for bits, group in sorted(by_width.items(), reverse=True)
    )


def _seats(config: EngineConfig, plan: CachePlan) -> str | None:
    """Why fewer requests than asked will run at once; None where all can, or where that breaks."""
    asked = min(config.schedule.batch, request_count(config))
    if config.memory.overflow == "break" or plan.requests >= asked:
        return None
    if plan.layout == "contiguous":
        return f"{plan.requests} of {asked} requests fit the vessel at once"
    longest = f"{plan.requests} of {asked} requests of the longest length"
    return f"{plan.blocks} blocks of {plan.block_size} tokens fit the vessel: {longest} at once"
