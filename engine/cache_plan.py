"""How large the cache will be: slots or blocks, decided before anything is allocated.

Torch-free and pure: the price, the forge and the engine itself take the size from here. Under a
memory budget the cache gets what weights, activations and scratch leave of the vessel, and never
more than `schedule.batch` requests of the longest length can fill.

Working memory grows with the cache (more seats, more rows a pass), and the cache with what working
memory leaves: `others` may be a function of the plan, and the largest plan is taken that fits
together with its own working memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from engine.config import EngineConfig
from engine.kv_format import vector_bytes
from engine.model.config import ModelConfig

FULL_ELEMENT = 4
"""Bytes of a float32 weight: the vessel is measured in them."""


@dataclass(frozen=True)
class CachePlan:
    """What the cache allocates.

    `capacity` is the most tokens of one request. Contiguous: `slots` of `capacity` tokens and no
    blocks. Paged: `blocks` of `block_size` tokens and no slots. `token_bytes` is one token over all
    layers.
    """

    layout: Literal["contiguous", "paged"]
    capacity: int
    slots: int
    blocks: int
    block_size: int
    token_bytes: int

    @property
    def tokens(self) -> int:
        """Token slots in all."""
        return self.slots * self.capacity + self.blocks * self.block_size

    @property
    def nbytes(self) -> int:
        return self.tokens * self.token_bytes

    @property
    def units(self) -> int:
        """Slots, or blocks: what is given out whole."""
        return self.blocks if self.layout == "paged" else self.slots

    @property
    def unit_bytes(self) -> int:
        size = self.block_size if self.layout == "paged" else self.capacity
        return size * self.token_bytes

    @property
    def units_a_request(self) -> int:
        """Units of one request of the longest length."""
        return -(-self.capacity // self.block_size) if self.layout == "paged" else 1

    @property
    def requests(self) -> int:
        """Requests of the longest length that it holds at once."""
        return self.units // self.units_a_request

    def seats(self, batch: int) -> int:
        """Sequences that can be in it at once, of `batch` that may run: each needs a unit."""
        return min(batch, self.units)

    def of(self, units: int) -> CachePlan:
        """The same cache with another number of slots, or blocks."""
        if self.layout == "paged":
            return replace(self, blocks=units)
        return replace(self, slots=units)


Others = int | Callable[[CachePlan], int]
"""Bytes beside the cache, or what they are for a plan: never less for a larger one."""


class BudgetError(ValueError):
    """A build that the vessel can never hold: both bounds, and what would fit.

    `vessel` is the budget, `others` what stands in it beside the cache of one request, `asked` what
    that request needs, all in bytes; `fits` is the longest request in tokens that the rest holds.
    `bounds` says so without the advice.
    """

    def __init__(self, vessel: int, others: int, one: CachePlan) -> None:
        self.vessel, self.others, self.asked = vessel, others, one.nbytes
        step = one.block_size if one.layout == "paged" else 1
        self.fits = max(vessel - others, 0) // (one.token_bytes * step) * step
        self.bounds = (
            f"the vessel holds {megabytes(vessel)}; weights and working memory take "
            f"{megabytes(others)} of it, and one request of {one.capacity} tokens needs "
            f"{megabytes(one.nbytes)} more"
        )
        if self.fits:
            would = f"a request of at most {self.fits} tokens would fit"
        else:
            would = (
                "not one token fits; lower the precision of the weights, or choose a larger budget"
            )
        super().__init__(f"{self.bounds}: {would}")


def megabytes(count: int) -> str:
    """Bytes in words: 10^6 of them a megabyte, the few of a toy model one by one."""
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count:,} bytes"


def vessel_bytes(config: EngineConfig, model: ModelConfig) -> int | None:
    """The memory budget in bytes: a share of the model's matrices in float32; None without one."""
    if config.memory.budget == 0:
        return None
    return config.memory.budget * model.matrix_elements * FULL_ELEMENT // 100


def budget_for(count: int, model: ModelConfig) -> int:
    """The smallest `memory.budget`, in percent, whose vessel holds `count` bytes."""
    return -(-count * 100 // (model.matrix_elements * FULL_ELEMENT))


def token_bytes(config: EngineConfig, model: ModelConfig, element: int) -> int:
    """Keys and values of one token over all layers; `element` is the run's bytes a number."""
    return (
        2 * model.layers * model.kv_heads * vector_bytes(model.head_dim, config.cache.bits, element)
    )


def plan_cache(
    config: EngineConfig,
    model: ModelConfig,
    element: int,
    others: Others,
    capacity: int | None = None,
) -> CachePlan:
    """The cache of a build, where weights, activations and scratch take `others` bytes.

    `capacity` is the longest request in tokens: the workload's prompt + output unless said.

    Raises:
        BudgetError: not one request of that length fits beside the others.
    """
    wanted = _wanted(config, model, element, capacity)
    vessel = vessel_bytes(config, model)
    if vessel is None:
        return wanted
    needs = others if callable(others) else lambda _: others
    one = wanted.of(wanted.units_a_request)
    if needs(one) + one.nbytes > vessel:
        raise BudgetError(vessel, needs(one), one)
    return _largest(one, wanted, vessel, needs)


def _wanted(
    config: EngineConfig, model: ModelConfig, element: int, capacity: int | None
) -> CachePlan:
    """Room for `schedule.batch` requests of the longest length, whatever the vessel holds."""
    paged = config.cache.layout == "paged"
    one = CachePlan(
        layout="paged" if paged else "contiguous",
        capacity=capacity or config.workload.prompt + config.workload.output,
        slots=0 if paged else 1,
        blocks=1 if paged else 0,
        block_size=config.cache.block_size,
        token_bytes=token_bytes(config, model, element),
    )
    return one.of(config.schedule.batch * one.units_a_request)


def _largest(
    least: CachePlan, most: CachePlan, vessel: int, needs: Callable[[CachePlan], int]
) -> CachePlan:
    """The most units that fit beside what they need, by bisection; `least` is known to fit."""
    low, high = least.units, most.units
    while low < high:
        middle = (low + high + 1) // 2
        plan = most.of(middle)
        if needs(plan) + plan.nbytes <= vessel:
            low = middle
        else:
            high = middle - 1
    return most.of(low)
