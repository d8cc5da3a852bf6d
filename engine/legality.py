"""Builds that no single knob can refuse: lengths that must fit together, memory that must suffice.

Torch-free. Every check runs before anything is loaded, and names the nearest legal value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from engine.cache_plan import BudgetError, CachePlan, budget_for, megabytes
from engine.capabilities import Capabilities
from engine.config import EngineConfig
from engine.fit import fit_cache, footprint, weight_bytes
from engine.knobs import KNOBS, KnobError
from engine.load import LEAST_OUTPUT, LEAST_OWN
from engine.model.config import ModelConfig
from engine.precision import element_bytes

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


@dataclass(frozen=True)
class Limits:
    """What bounds a build's memory: the model, and the bytes and precisions of a machine.

    `most` are the bytes it gives, 0 where its memory is not known; `packed_head` as in
    `engine.fit.weight_bytes`.
    """

    model: ModelConfig
    most: int
    precisions: tuple[str, ...]
    packed_head: bool

    @classmethod
    def of(cls, model: ModelConfig, capabilities: Capabilities) -> Limits:
        return cls(
            model,
            int(MACHINE_SHARE * capabilities.memory_bytes),
            tuple(word for word, why_not in capabilities.precisions.items() if not why_not),
            "packed" in capabilities.linear_forms,
        )

    def plan(self, config: EngineConfig) -> CachePlan:
        """Raises BudgetError where the vessel cannot hold one request."""
        return fit_cache(config, self.model, self._weights(config))

    def total(self, config: EngineConfig, plan: CachePlan) -> int:
        return footprint(config, self.model, self._weights(config), plan)

    def holds(self, config: EngineConfig) -> bool:
        """Whether the build would run: in its vessel, and on this machine."""
        try:
            plan = self.plan(config)
        except BudgetError:
            return False
        return self.most <= 0 or self.total(config, plan) <= self.most

    def _weights(self, config: EngineConfig) -> int:
        return weight_bytes(self.model, element_bytes(config.run.precision), self.packed_head)


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


def _nearest_of(name: str, config: EngineConfig, limits: Limits) -> int | str | None:
    """The value of one knob nearest to the build's own with which it would run."""

    def holds(value: int | str) -> bool:
        return limits.holds(_with(config, name, value))

    if name == "run.precision":
        return next(filter(holds, limits.precisions), None)
    if name == "workload.prompt":
        least = LEAST_OWN if config.workload.mix == "mixed" else 1
        return _bisect(config.workload.system + least, config.workload.prompt, holds)
    return _bisect(1, config.schedule.batch, holds)


def _with(config: EngineConfig, name: str, value: int | str) -> EngineConfig:
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
