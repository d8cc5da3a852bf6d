"""A cache for one text at a time, outside any budget: what scoring and looking for faults need."""

from __future__ import annotations

from engine.cache.kv_cache import KVCache
from engine.cache.make import make_cache
from engine.cache_plan import CachePlan
from engine.kv_format import vector_bytes
from engine.model.llama import Llama


def plain_cache(model: Llama, capacity: int, bits: int = 0) -> KVCache:
    """One contiguous slot of `capacity` tokens of the model's shape.

    `bits` is the width keys and values are kept in, as `cache.bits` says it: 0 is the model's own.

    Raises:
        ValueError: a capacity below 1, or a width there is no format for.
    """
    shape = model.config
    vector = vector_bytes(shape.head_dim, bits, model.dtype.itemsize)
    plan = CachePlan(
        layout="contiguous",
        capacity=capacity,
        slots=1,
        blocks=0,
        block_size=1,
        token_bytes=2 * shape.layers * shape.kv_heads * vector,
    )
    return make_cache(plan, shape, bits, model.dtype, model.device)
