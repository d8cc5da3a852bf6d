"""Scattered writes against one at a time."""

from __future__ import annotations

import pytest
import torch

from kernels.kv_store.reference import store as one_by_one
from kernels.kv_store.scatter import store, store_both


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [0, 1, 7, 40])
def test_scatter_writes_the_named_rows_and_no_other(dtype: torch.dtype, count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    pool = torch.randn(40, 5, generator=generator).to(dtype)
    rows = torch.randperm(40, generator=generator)[:count]
    vectors = torch.randn(count, 5, generator=generator).to(dtype)
    expected = pool.clone()
    one_by_one(expected, rows, vectors)
    store(pool, rows, vectors)
    assert torch.equal(pool, expected)


def test_a_row_outside_the_pool_is_an_error() -> None:
    with pytest.raises((IndexError, RuntimeError)):
        store(torch.zeros(4, 2), torch.tensor([4]), torch.ones(1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=str)
@pytest.mark.parametrize("count", [1, 7, 40])
def test_keys_and_values_go_to_the_same_rows_of_their_pools(dtype: torch.dtype, count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    pools = torch.randint(-99, 99, (2, 40, 5), generator=generator).to(dtype)
    rows = torch.randperm(40, generator=generator)[:count]
    vectors = torch.randint(-99, 99, (2, count, 5), generator=generator).to(dtype)
    expected = pools.clone()
    for side in (0, 1):
        one_by_one(expected[side], rows, vectors[side])
    store_both(pools, rows, vectors)
    assert torch.equal(pools, expected)
