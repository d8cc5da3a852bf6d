"""How large the cache will be: slots or blocks, decided before anything is allocated.

Torch-free and pure: the price, the forge and the engine itself take the size from here. Under a
memory budget the cache gets what weights, activations and scratch leave of the vessel, and never
more than `schedule.batch` requests of the longest length can fill.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.config import EngineConfig
from engine.kv_format import vector_bytes
from engine.model.config import ModelConfig

FULL_ELEMENT = 4
"""Bytes of a float32 weight: the vessel is measured in them."""


class BudgetError(ValueError):
    """A build that the vessel can never hold: both bounds, and what would fit."""


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


def vessel_bytes(config: EngineConfig, model: ModelConfig) -> int | None:
    """The memory budget in bytes: a share of the model's matrices in float32; None without one."""
    if config.memory.budget == 0:
        return None
    return config.memory.budget * model.matrix_elements * FULL_ELEMENT // 100


def token_bytes(config: EngineConfig, model: ModelConfig, element: int) -> int:
    """Keys and values of one token over all layers; `element` is the run's bytes a number."""
    return (
        2 * model.layers * model.kv_heads * vector_bytes(model.head_dim, config.cache.bits, element)
    )


def plan_cache(
    config: EngineConfig,
    model: ModelConfig,
    element: int,
    others: int,
    capacity: int | None = None,
) -> CachePlan:
    """The cache of a build, where weights, activations and scratch take `others` bytes.

    `capacity` is the longest request in tokens: the workload's prompt + output unless said.

    Raises:
        BudgetError: not one request of that length fits beside the others.
    """
    longest = capacity or config.workload.prompt + config.workload.output
    size = config.cache.block_size
    each = token_bytes(config, model, element)
    paged = config.cache.layout == "paged"
    unit = size if paged else longest
    units_a_request = -(-longest // size) if paged else 1
    wanted = config.schedule.batch * units_a_request
    vessel = vessel_bytes(config, model)
    if vessel is not None:
        free = vessel - others
        fit = max(free, 0) // (unit * each)
        if fit < units_a_request:
            raise BudgetError(
                f"the vessel holds {vessel:,} bytes; weights and working memory take {others:,} "
                f"of them, and one request of {longest} tokens needs "
                f"{units_a_request * unit * each:,} more: "
                f"{_what_fits(free, each, size if paged else 1)}"
            )
        wanted = min(wanted, fit)
    return CachePlan(
        layout="paged" if paged else "contiguous",
        capacity=longest,
        slots=0 if paged else wanted,
        blocks=wanted if paged else 0,
        block_size=size,
        token_bytes=each,
    )


def _what_fits(free: int, each: int, step: int) -> str:
    tokens = max(free, 0) // (each * step) * step
    if tokens < 1:
        return "not one token fits; lower the precision of the weights, or choose a larger budget"
    return f"a request of at most {tokens} tokens would fit"
