"""Builds that no single knob can refuse: lengths that must fit together, memory that must suffice.

Torch-free. Every check runs before anything is loaded, and names the nearest legal value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from engine.cache_plan import BudgetError, CachePlan, budget_for, megabytes
from engine.capabilities import Capabilities
from engine.config import EngineConfig, WeightsConfig
from engine.domains import KnobError, Value
from engine.drafters import NO_OTHERS, Drafters, held_bytes
from engine.fit import fit_cache, footprint, weight_bytes
from engine.knobs import KNOBS
from engine.load import LEAST_OUTPUT, LEAST_OWN
from engine.model.config import ModelConfig
from engine.precision import element_bytes
from engine.recipe import FULL, matrices, recipe_of
from engine.weight_format import ROW, nearest_group

MACHINE_SHARE = 0.8
"""Of the machine's memory a build may take: the system, the interface and passing buffers need
the rest."""

LEAST_ANSWER = 2
"""Tokens of the shortest answer: TPOT needs a gap."""


def check_lengths(config: EngineConfig, model: ModelConfig) -> None:
    """Whether prompt, answer, context and shared beginning go together.

    Raises:
        KnobError: they do not; names the nearest lengths that do.
    """
    work = config.workload
    need = work.prompt + work.output
    if need > model.context:
        if work.output < model.context:
            nearest = f"workload.prompt={model.context - work.output}"
        else:
            prompt = min(work.prompt, model.context - LEAST_ANSWER)
            nearest = f"workload.prompt={prompt} with workload.output={model.context - prompt}"
        raise KnobError(
            f"workload.prompt + workload.output is {need} tokens and the model's context is "
            f"{model.context}; nearest: {nearest}"
        )
    mixed = work.mix == "mixed"
    least = LEAST_OWN if mixed else 1
    if work.prompt < least:
        raise KnobError(
            f"a mixed load draws prompts below its longest, which needs {least} tokens; "
            f"workload.prompt is {work.prompt}; nearest: workload.prompt={least}"
        )
    if work.prompt - work.system < least:
        own = "none" if work.system >= work.prompt else f"{work.prompt - work.system}"
        raise KnobError(
            f"workload.system={work.system} leaves {own} of the {work.prompt} tokens of "
            f"workload.prompt to each request; at least {least} must be its own; nearest: "
            f"workload.system={work.prompt - least}"
        )
    if mixed and work.output < LEAST_OUTPUT:
        raise KnobError(
            f"a mixed load draws answers from half its longest up, which needs {LEAST_OUTPUT} "
            f"tokens; workload.output is {work.output}; nearest: workload.output={LEAST_OUTPUT}"
        )


def check_layout(config: EngineConfig, model: ModelConfig) -> None:
    """Whether the cache's knobs go together, and with this model.

    Raises:
        KnobError: they do not; names the nearest value that does.
    """
    cache = config.cache
    if cache.layout == "paged":
        reason = KNOBS["cache.block_size"].unavailable(cache.block_size, None, model)
        if reason:
            raise KnobError(f"cache.block_size={cache.block_size} cannot run here: {reason}")
    elif cache.prefix_sharing == "on":
        raise KnobError(
            "cache.prefix_sharing=on needs blocks to share, and a contiguous slot is one "
            "request's alone; nearest: cache.prefix_sharing=off, or cache.layout=paged"
        )


def check_weights(config: EngineConfig, model: ModelConfig) -> None:
    """Whether the knobs of quantisation go together, and with the model's matrices.

    Raises:
        KnobError: a group that does not divide the rows it is for, or SmoothQuant in other than
            eight bits or with groups of its own; names the nearest value that can be.
    """
    weights = config.weights
    if weights.method == "smoothquant":
        _check_smoothquant(weights)
    group = weights.group
    found = matrices(recipe_of(weights, model), model)
    asked = {one.columns for one in found if one.scheme and one.scheme.group == group}
    if group > 0 and any(columns % group for columns in asked):
        wide = ", ".join(str(columns) for columns in sorted(asked))
        raise KnobError(
            f"weights.group={group} does not divide rows of {wide} weights; nearest: "
            f"weights.group={_nearest_group(group, asked)}"
        )


def check_draft(config: EngineConfig, model: ModelConfig) -> None:
    """Whether what drafts goes with the model.

    Raises:
        KnobError: it leaves after a layer that the model has not; names the nearest that can be.
    """
    draft = config.draft
    if draft.kind == "exit" and draft.exit_layer > model.layers:
        raise KnobError(
            f"draft.exit_layer={draft.exit_layer} leaves after a layer that the model, which has "
            f"{model.layers}, does not reach; nearest: draft.exit_layer={model.layers}"
        )


def _nearest_group(group: int, widths: Collection[int]) -> str:
    """Of the groups that the knob can be set to: those of odd shapes may all be too small."""
    domain, nearest = KNOBS["weights.group"].domain, nearest_group(group, widths)
    try:
        return domain.show(domain.check(nearest))
    except KnobError:
        return domain.show(ROW)


def _check_smoothquant(weights: WeightsConfig) -> None:
    """It moves scales from activations to weights so that both can be eight bits wide."""
    widths = {name: getattr(weights, name) for name in ("attention", "mlp", "edges")}
    wrong = {
        f"weights.{name}": bits for name, bits in widths.items() if bits not in _OF_SMOOTHQUANT
    }
    follows = not (weights.attention and weights.mlp)
    if follows and weights.bits not in _OF_SMOOTHQUANT:
        wrong = {"weights.bits": weights.bits} | wrong
    if wrong:
        told = ", ".join(f"{name}={bits}" for name, bits in wrong.items())
        raise KnobError(
            f"weights.method=smoothquant is for 8-bit weights and activations, and {told} asks for "
            f"others; nearest: {' with '.join(f'{name}=8' for name in wrong)}"
        )
    if weights.group not in (0, ROW):
        raise KnobError(
            f"weights.method=smoothquant has one scale a row, and weights.group={weights.group} "
            "asks for more; nearest: weights.group=row"
        )


_OF_SMOOTHQUANT = (0, 8, FULL)


@dataclass(frozen=True)
class Limits:
    """What bounds a build's memory: the model, and the bytes and precisions of a machine.

    `most` are the bytes it gives, 0 where its memory is not known; `packs` says of a precision
    whether dense weights have a packed copy, `forms` are its low-bit forms by precision.
    """

    model: ModelConfig
    most: int
    precisions: tuple[str, ...]
    packs: Callable[[str], bool]
    forms: Mapping[str, Collection[str]] = field(default_factory=dict)
    drafters: Drafters = NO_OTHERS

    @classmethod
    def of(
        cls, model: ModelConfig, capabilities: Capabilities, drafters: Drafters = NO_OTHERS
    ) -> Limits:
        return cls(
            model,
            int(MACHINE_SHARE * capabilities.memory_bytes),
            tuple(word for word, why_not in capabilities.precisions.items() if not why_not),
            capabilities.packs,
            capabilities.low_bit_forms,
            drafters,
        )

    def plan(self, config: EngineConfig) -> CachePlan:
        """Raises BudgetError where the vessel cannot hold one request."""
        return fit_cache(config, self.model, self._weights(config), forms=self._forms(config))

    def total(self, config: EngineConfig, plan: CachePlan) -> int:
        return footprint(config, self.model, self._weights(config), plan, self._forms(config))

    def holds(self, config: EngineConfig) -> bool:
        """Whether the build would run: in its vessel, and on this machine."""
        try:
            plan = self.plan(config)
        except BudgetError:
            return False
        return self.most <= 0 or self.total(config, plan) <= self.most

    def _weights(self, config: EngineConfig) -> int:
        """The target's, and what drafts beside it."""
        size, recipe = element_bytes(config.run.precision), recipe_of(config.weights, self.model)
        packed = self.packs(config.run.precision)
        forms = self._forms(config)
        draft = held_bytes(config, self.model, self.drafters, packed, forms)
        return weight_bytes(self.model, size, packed, recipe, forms) + draft

    def _forms(self, config: EngineConfig) -> Collection[str]:
        return self.forms.get(config.run.precision, ())


def check_memory(config: EngineConfig, limits: Limits) -> CachePlan:
    """The cache that the build will have, in its vessel and on this machine.

    Raises:
        KnobError: the vessel cannot hold one request, or the machine not the whole; names both
            bounds and the nearest prompt, batch, precision or budget that fits.
    """
    try:
        plan = limits.plan(config)
    except BudgetError as error:
        vessel = budget_for(error.others + error.asked, limits.model)
        nearest = _nearest(config, limits, ("workload.prompt", "run.precision"))
        raise KnobError(
            f"{error.bounds}; nearest: {nearest or f'memory.budget={vessel}'}"
        ) from None
    total = limits.total(config, plan)
    if 0 < limits.most < total:
        nearest = _nearest(config, limits, ("schedule.batch", "workload.prompt", "run.precision"))
        raise KnobError(
            f"the build takes {megabytes(total)} and this machine gives {megabytes(limits.most)}, "
            f"{MACHINE_SHARE:.0%} of its memory; nearest: {nearest or 'a smaller model'}"
        )
    return plan


def _nearest(config: EngineConfig, limits: Limits, knobs: tuple[str, ...]) -> str | None:
    """The first of `knobs` that alone makes the build run, at its nearest value: `name=value`."""
    for name in knobs:
        value = _nearest_of(name, config, limits)
        if value is not None:
            return f"{name}={value}"
    return None


def _nearest_of(name: str, config: EngineConfig, limits: Limits) -> Value | None:
    """The value of one knob nearest to the build's own with which it would run."""

    def holds(value: Value) -> bool:
        return limits.holds(_with(config, name, value))

    if name == "run.precision":
        return next(filter(holds, limits.precisions), None)
    if name == "workload.prompt":
        least = LEAST_OWN if config.workload.mix == "mixed" else 1
        return _bisect(config.workload.system + least, config.workload.prompt, holds)
    return _bisect(1, config.schedule.batch, holds)


def _with(config: EngineConfig, name: str, value: Value) -> EngineConfig:
    section, key = name.split(".")
    part = msgspec.structs.replace(getattr(config, section), **{key: value})
    return msgspec.structs.replace(config, **{section: part})


def _bisect(safe: int, wished: int, holds: Callable[[int], bool]) -> int | None:
    """The number nearest to `wished` that holds, on the way from `safe`; None where that does not.

    Every number between one that holds and `safe` holds too.
    """
    if not holds(safe):
        return None
    while abs(wished - safe) > 1:
        middle = (safe + wished) // 2
        safe, wished = (middle, wished) if holds(middle) else (safe, middle)
    return safe
