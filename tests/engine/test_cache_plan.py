"""The size of a cache against sums by hand, and against every smaller and larger one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_machines import SMOLLM2

from engine.cache_plan import (
    BudgetError,
    CachePlan,
    budget_for,
    megabytes,
    plan_cache,
    vessel_bytes,
)
from engine.config import (
    CacheConfig,
    EngineConfig,
    MemoryConfig,
    RunConfig,
    ScheduleConfig,
    WorkloadConfig,
)

BF16_TOKEN = 23_040
MATRICES = 30 * (2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536) + 49_152 * 576


def config(
    layout: str = "contiguous",
    batch: int = 8,
    prompt: int = 1000,
    output: int = 24,
    budget: int = 0,
    block: int = 16,
    bits: int = 0,
) -> EngineConfig:
    return EngineConfig(
        WorkloadConfig(prompt, output),
        ScheduleConfig(batch),
        RunConfig("bfloat16", 1),
        CacheConfig(layout, block, bits),
        memory=MemoryConfig(budget),
    )


def test_without_a_budget_every_request_of_the_batch_gets_the_longest_length() -> None:
    plan = plan_cache(config(), SMOLLM2, 2, others=10**12)
    assert (plan.slots, plan.blocks, plan.capacity) == (8, 0, 1024)
    assert plan.tokens == 8 * 1024
    assert plan.nbytes == 8 * 1024 * BF16_TOKEN


def test_a_paged_plan_rounds_each_request_up_to_whole_blocks() -> None:
    plan = plan_cache(config("paged", prompt=1001, block=16), SMOLLM2, 2, others=0)
    assert (plan.slots, plan.blocks, plan.capacity) == (0, 8 * 65, 1025)
    assert plan.nbytes == 8 * 65 * 16 * BF16_TOKEN


def test_the_vessel_is_a_share_of_the_matrices_in_float32() -> None:
    assert vessel_bytes(config(budget=100), SMOLLM2) == 4 * MATRICES == 537_919_488
    assert vessel_bytes(config(budget=95), SMOLLM2) == int(0.95 * 4 * MATRICES)
    assert vessel_bytes(config(), SMOLLM2) is None


def test_a_vessel_that_is_full_to_the_byte_holds_what_it_holds() -> None:
    vessel = 4 * MATRICES
    slot = 1024 * BF16_TOKEN
    exact = plan_cache(config(budget=100), SMOLLM2, 2, others=vessel - 3 * slot)
    one_short = plan_cache(config(budget=100), SMOLLM2, 2, others=vessel - 3 * slot + 1)
    assert (exact.slots, one_short.slots) == (3, 2)


def test_one_message_holds_both_bounds_and_what_would_fit() -> None:
    others = 4 * MATRICES - 500 * BF16_TOKEN
    with pytest.raises(BudgetError) as caught:
        plan_cache(config(budget=100), SMOLLM2, 2, others)
    assert str(caught.value) == (
        "the vessel holds 537.9 MB; weights and working memory take 526.4 MB of it, and one "
        "request of 1024 tokens needs 23.6 MB more: a request of at most 500 tokens would fit"
    )
    assert caught.value.fits == 500
    with pytest.raises(BudgetError, match="at most 496 tokens would fit"):
        plan_cache(config("paged", budget=100), SMOLLM2, 2, others)


def test_weights_that_fill_the_vessel_alone_are_told_so() -> None:
    with pytest.raises(BudgetError, match="not one token fits; lower the precision") as caught:
        plan_cache(config(budget=50), SMOLLM2, 2, others=4 * MATRICES)
    assert caught.value.fits == 0


def test_a_capacity_of_ones_own_replaces_the_workloads_longest() -> None:
    plan = plan_cache(config(batch=2), SMOLLM2, 2, others=0, capacity=100)
    assert (plan.slots, plan.capacity) == (2, 100)


def test_working_memory_that_grows_with_the_cache_is_counted_for_the_plan_that_is_taken() -> None:
    """Each slot brings 10 MB: 100 MB hold 2 slots of 23.6 MB with it (67.2), not 3 (100.8)."""
    vessel = 4 * MATRICES

    def others(plan: CachePlan) -> int:
        return vessel - 100_000_000 + 10_000_000 * plan.slots

    assert plan_cache(config(budget=100), SMOLLM2, 2, others).slots == 2


layouts = st.sampled_from(["contiguous", "paged"])


@given(layouts, st.integers(1, 64), st.integers(1, 3000), st.integers(0, 10**9), st.data())
def test_the_plan_is_the_largest_that_fits_and_that_the_batch_can_fill(
    layout: str, batch: int, prompt: int, fixed: int, data: st.DataObject
) -> None:
    block = data.draw(st.sampled_from([1, 16, 256]))
    each = data.draw(st.integers(0, 5_000_000))
    budget = data.draw(st.integers(1, 400))
    built = config(layout, batch, prompt, 8, budget, block, bits=data.draw(st.sampled_from([0, 8])))
    vessel = budget * 4 * MATRICES // 100
    needed = prompt + 8 if layout == "contiguous" else -(-(prompt + 8) // block) * block

    def total(plan: CachePlan) -> int:
        return fixed + each * plan.units + plan.nbytes

    try:
        plan = plan_cache(built, SMOLLM2, 2, lambda plan: fixed + each * plan.units)
    except BudgetError as error:
        assert error.others + error.asked > vessel
        return
    assert total(plan) <= vessel
    assert needed <= plan.tokens <= batch * needed
    assert plan.tokens == batch * needed or total(plan.of(plan.units + 1)) > vessel
    assert plan.requests == plan.tokens // needed


def test_a_budget_is_found_for_any_number_of_bytes() -> None:
    for count in (1, 4 * MATRICES, 4 * MATRICES + 1, 700_000_000):
        found = budget_for(count, SMOLLM2)
        holds = [vessel_bytes(config(budget=found - less), SMOLLM2) or 0 for less in (0, 1)]
        assert holds[0] >= count and (found == 1 or holds[1] < count)


def test_seats_need_a_unit_each() -> None:
    plan = CachePlan("paged", capacity=32, slots=0, blocks=6, block_size=16, token_bytes=1)
    assert (plan.seats(4), plan.seats(64), plan.requests) == (4, 6, 3)
    assert CachePlan("contiguous", 32, 3, 0, 16, 1).seats(8) == 3


def test_megabytes_are_ten_to_the_sixth() -> None:
    assert megabytes(511_023_513) == "511.0 MB"
    assert megabytes(1_234_567_890) == "1,234.6 MB"
    assert megabytes(2_048) == "2,048 bytes"
