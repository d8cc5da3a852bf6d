"""From a plan to a cache: what is allocated is what was planned."""

from __future__ import annotations

import msgspec
import pytest
import torch
from known_machines import SMOLLM2

from engine.cache.contiguous import ContiguousCache
from engine.cache.make import make_cache
from engine.cache.paged import PagedCache
from engine.cache_plan import CachePlan, plan_cache
from engine.config import CacheConfig, EngineConfig, ScheduleConfig, WorkloadConfig
from engine.model.config import ModelConfig

SMALL = msgspec.structs.replace(SMOLLM2, layers=2, kv_heads=2, head_dim=8)
ODD = msgspec.structs.replace(SMOLLM2, layers=3, heads=5, kv_heads=5, head_dim=12)


def planned(model: ModelConfig, element: int, **cache: object) -> CachePlan:
    config = EngineConfig(
        workload=WorkloadConfig(prompt=30, output=7),
        schedule=ScheduleConfig(batch=3),
        cache=CacheConfig(**cache),  # type: ignore[arg-type]
    )
    return plan_cache(config, model, element, 0)


@pytest.mark.parametrize("model", [SMALL, ODD])
@pytest.mark.parametrize("layout", ["contiguous", "paged"])
@pytest.mark.parametrize("bits", [0, 16, 8, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cache_takes_the_bytes_of_its_plan(
    model: ModelConfig, layout: str, bits: int, dtype: torch.dtype
) -> None:
    plan = planned(model, dtype.itemsize, layout=layout, bits=bits, block_size=4)
    cache = make_cache(plan, model, bits, dtype)
    assert cache.nbytes == plan.nbytes
    assert cache.token_bytes == plan.token_bytes
    assert cache.capacity == plan.capacity == 37
    assert cache.vacant_tokens == plan.tokens == (3 * 37 if layout == "contiguous" else 3 * 40)
    assert isinstance(cache, PagedCache if layout == "paged" else ContiguousCache)


@pytest.mark.parametrize(("sharing", "found"), [(False, 0), (True, 29)])
def test_prefix_sharing_is_a_choice(sharing: bool, found: int) -> None:
    plan = planned(SMALL, 4, layout="paged")
    cache = make_cache(plan, SMALL, 0, torch.float32, prefix_sharing=sharing)
    prompt = tuple(range(30))
    cache.admit(0, prompt, 37)
    cache.append([0], [list(prompt) + [1, 2]])
    assert cache.admit(1, prompt, 37) == found


def test_sharing_without_blocks_is_refused() -> None:
    plan = planned(SMALL, 4, layout="contiguous")
    with pytest.raises(ValueError, match="prefix sharing needs blocks.*cache.layout=paged"):
        make_cache(plan, SMALL, 0, torch.float32, prefix_sharing=True)


def test_a_plan_for_another_model_or_width_is_refused() -> None:
    plan = planned(SMALL, 4, layout="paged")
    for model, bits, dtype in (
        (ODD, 0, torch.float32),
        (SMALL, 8, torch.float32),
        (SMALL, 0, torch.bfloat16),
    ):
        with pytest.raises(ValueError, match="made for another model, width or precision"):
            make_cache(plan, model, bits, dtype)
