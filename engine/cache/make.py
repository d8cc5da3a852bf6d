"""From a plan to a cache: the one place that knows both layouts."""

from __future__ import annotations

import torch

from engine.cache.contiguous import ContiguousCache
from engine.cache.kv_cache import KVCache
from engine.cache.paged import PagedCache
from engine.cache.storage import KVStorage
from engine.cache_plan import CachePlan
from engine.model.config import ModelConfig
from kernels.attention import decode


def make_cache(
    plan: CachePlan,
    model_config: ModelConfig,
    bits: int,
    dtype: torch.dtype,
    device: str = "cpu",
    prefix_sharing: bool = False,
) -> KVCache:
    """Allocate what `plan` says, for a model of this shape that runs in `dtype`.

    `bits` is the width vectors are kept in, 0 for that of the run.

    Raises:
        ValueError: a width there is no format for, sharing without blocks, or a plan for another
            width or another model.
    """
    paged = plan.layout == "paged"
    if prefix_sharing and not paged:
        raise ValueError(
            "prefix sharing needs blocks: a contiguous slot belongs to one sequence; "
            "nearest: cache.layout=paged"
        )
    storage = KVStorage(
        layers=model_config.layers,
        groups=plan.blocks if paged else plan.slots,
        kv_heads=model_config.kv_heads,
        places=plan.block_size if paged else plan.capacity,
        head_dim=model_config.head_dim,
        bits=bits,
        dtype=dtype,
        device=device,
    )
    if storage.nbytes != plan.nbytes:
        raise ValueError(
            f"the plan counts {plan.nbytes:,} bytes and the cache takes {storage.nbytes:,}: it was "
            f"made for another model, width or precision"
        )
    for attended in {dtype, torch.float32}:  # now, and in no pass that is measured
        decode.takes(model_config.head_dim, attended)
    return PagedCache(storage, plan.capacity, prefix_sharing) if paged else ContiguousCache(storage)
