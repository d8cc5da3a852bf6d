"""A decode step over a pool against each row's own keys, brought together."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from paged_cases import draw_tables, fill, pairs_of

from engine.cache.paged_span import CHUNK_BYTES, FEWEST_PLACES, PagedSpan, decode_form
from engine.cache.storage import KVStorage
from engine.kv_format import KV_WIDTHS
from kernels.attention.reference import paged_attention

WIDTH = 16
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def largest_error(
    lengths: list[int],
    block_size: int,
    heads: tuple[int, int] = (9, 3),
    bits: int = 0,
    dtype: torch.dtype = torch.float32,
    window: int | None = None,
    shared: int = 0,
    spare: int = 0,
    width: int = WIDTH,
    seed: int = 0,
) -> float:
    """Of layer 1 of 2, against the float32 reference over what the storage says it holds."""
    case = draw_tables(random.Random(seed), lengths, block_size, shared, spare)
    storage = KVStorage(2, case.blocks, heads[1], block_size, width, bits, dtype)
    fill(storage, seed)
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(len(lengths), heads[0], width, generator=generator).to(dtype)
    pools = storage.view(1, slice(0, case.blocks), slice(0, block_size))
    keys, values = (pool.float() for pool in pools)
    truth = paged_attention(query.float(), keys, values, case.tables, lengths, window)
    span = PagedSpan(storage, pairs_of(case, window), lengths, window, dtype)
    assert span.rows == len(lengths)
    got = span.attend(1, query)
    assert got.dtype == dtype
    return float((got.float() - truth).abs().max())


@pytest.mark.parametrize("heads", [(9, 3), (8, 8), (8, 1)], ids=str)
@pytest.mark.parametrize("block_size", [1, 3, 4, 16, 37, 256])
@pytest.mark.parametrize("window", [None, 1, 20])
def test_scattered_blocks_of_any_size(
    heads: tuple[int, int], block_size: int, window: int | None
) -> None:
    lengths = [1, 33, block_size, block_size + 1, 2 * block_size - 1 or 1, 5]
    assert largest_error(lengths, block_size, heads, window=window) <= 2e-6


@pytest.mark.parametrize("bits", KV_WIDTHS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("block_size", [1, 16])
@pytest.mark.parametrize("shared", [0, 2])
def test_every_width_and_precision(
    bits: int, dtype: torch.dtype, block_size: int, shared: int
) -> None:
    lengths = [50, 17, 48, 64, 1]
    error = largest_error(lengths, block_size, bits=bits, dtype=dtype, shared=shared)
    assert error <= TOLERANCE[dtype]


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 45), min_size=1, max_size=9),
    block_size=st.sampled_from([1, 2, 4, 5, 8, 16]),
    shared=st.integers(0, 5),
    window=st.sampled_from([None, None, 1, 6, 17, 100]),
    spare=st.sampled_from([0, 2, 60]),
    bits=st.sampled_from([0, 8]),
    seed=st.integers(0, 999),
)
def test_any_tables(
    lengths: list[int],
    block_size: int,
    shared: int,
    window: int | None,
    spare: int,
    bits: int,
    seed: int,
) -> None:
    error = largest_error(
        lengths, block_size, window=window, shared=shared, spare=spare, bits=bits, seed=seed
    )
    assert error <= 2e-6


@pytest.mark.parametrize("sharers", [2, 3, 8, 9])
def test_a_common_beginning_of_many(sharers: int) -> None:
    lengths = [40 + 3 * row for row in range(sharers)]
    assert largest_error(lengths, 4, shared=9) <= 2e-6


def test_a_pool_read_in_several_pieces() -> None:
    """More blocks than are decoded at a time."""
    width, block_size, heads = 64, 16, (9, 3)
    tokens = 2 * CHUNK_BYTES // (heads[1] * width * 4)
    lengths = [tokens // 2, tokens // 3, tokens // 3]
    assert largest_error(lengths, block_size, heads, bits=8, width=width) <= 2e-6
    assert largest_error(lengths, block_size, heads, bits=8, width=width, shared=40) <= 2e-6


def test_nothing_of_free_blocks_or_other_rows_is_seen() -> None:
    """Every place that a row may not look at holds NaN, but those past its end, which are zero."""
    case = draw_tables(random.Random(1), [9, 6], 4, spare=5)
    storage = KVStorage(1, case.blocks, 1, 4, 8, 0, torch.float32)
    fill(storage, 1)
    query = torch.randn(2, 2, 8, generator=torch.Generator().manual_seed(1))
    clean = PagedSpan(storage, pairs_of(case), [9, 6], None, torch.float32).attend(0, query)
    used = {block for table in case.tables for block in table}
    for side in storage.view(0, slice(0, case.blocks), slice(0, 4)):
        for block in set(range(case.blocks)) - used | set(case.tables[1]):
            side[block] = torch.nan
    got = PagedSpan(storage, pairs_of(case), [9, 6], None, torch.float32).attend(0, query)
    assert torch.equal(got[0], clean[0])
    assert not bool(torch.isfinite(got[1]).any())


def test_large_values_survive_half_precision() -> None:
    case = draw_tables(random.Random(0), [256], 256)
    storage = KVStorage(1, 1, 1, 256, 8, 0, torch.float16)
    rows = torch.arange(256)
    large = torch.full((256, 1, 8), 300.0, dtype=torch.float16)
    storage.write(0, rows, torch.zeros_like(large), large)
    span = PagedSpan(storage, pairs_of(case), [256], None, torch.float16)
    got = span.attend(0, torch.ones(1, 2, 8, dtype=torch.float16))
    assert torch.equal(got, torch.full((1, 16), 300.0, dtype=torch.float16))


@pytest.mark.parametrize("supported", [True, False])
def test_bfloat16_with_and_without_products_of_its_own(
    supported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kernels.attention.paged.multiplies",
        lambda dtype, device: dtype == torch.float32 or supported,
    )
    assert largest_error([70, 33, 48], 16, dtype=torch.bfloat16) <= TOLERANCE[torch.bfloat16]


def test_the_form_is_named_by_the_block_size() -> None:
    assert decode_form(FEWEST_PLACES - 1) == "paged-vectors"
    assert decode_form(FEWEST_PLACES) == "paged-queries"


def test_a_length_is_needed_for_every_row() -> None:
    case = draw_tables(random.Random(0), [4, 4], 4)
    storage = KVStorage(1, 2, 1, 4, 8, 0, torch.float32)
    with pytest.raises(ValueError, match="1 lengths for 2 rows"):
        PagedSpan(storage, pairs_of(case), [4], None, torch.float32)
