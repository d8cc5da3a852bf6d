"""The pool's books against three plain sets, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.block_pool import BlockPool


def test_the_lowest_free_block_is_the_next_one_given() -> None:
    pool = BlockPool(4)
    assert [pool.take() for _ in range(4)] == [0, 1, 2, 3]
    for block in (2, 0, 3):
        pool.release(block, keep=False)
    assert [pool.take() for _ in range(3)] == [0, 2, 3]


def test_a_block_in_two_tables_stays_held_after_one_release() -> None:
    pool = BlockPool(2)
    block = pool.take()
    pool.share(block)
    assert (pool.references(block), pool.shared, pool.held) == (2, 1, 1)
    pool.release(block, keep=False)
    assert (pool.references(block), pool.shared, pool.held, pool.free) == (1, 0, 1, 1)
    pool.release(block, keep=False)
    assert (pool.held, pool.free) == (0, 2)


def test_cached_blocks_are_evicted_in_the_order_of_their_last_release() -> None:
    pool = BlockPool(3)
    for _ in range(3):
        pool.take()
    for block in (1, 0, 2):
        pool.release(block, keep=True)
    pool.share(1)  # used again: the most recent once released
    pool.release(1, keep=True)
    order = []
    while pool.cached:
        order.append(pool.oldest_cached())
        pool.evict(order[-1])
    assert order == [0, 2, 1]


def test_a_cached_block_counts_as_available_until_it_is_shared() -> None:
    pool = BlockPool(2)
    block = pool.take()
    pool.release(block, keep=True)
    assert (pool.free, pool.cached, pool.available) == (1, 1, 2)
    pool.share(block)
    assert (pool.free, pool.cached, pool.available) == (1, 0, 1)


def test_a_second_release_is_refused() -> None:
    pool = BlockPool(2)
    block = pool.take()
    pool.release(block, keep=False)
    with pytest.raises(ValueError, match=f"block {block} is held by nobody"):
        pool.release(block, keep=False)


def test_a_cached_block_cannot_be_released() -> None:
    pool = BlockPool(1)
    pool.release(pool.take(), keep=True)
    with pytest.raises(ValueError, match="cannot be released again"):
        pool.release(0, keep=True)


@pytest.mark.parametrize("block", [-1, 3, 99])
def test_a_foreign_block_is_refused(block: int) -> None:
    pool = BlockPool(3)
    for act in (
        lambda: pool.release(block, keep=False),
        lambda: pool.share(block),
        lambda: pool.evict(block),
        lambda: pool.references(block),
    ):
        with pytest.raises(ValueError, match=f"no block {block}; blocks are 0 to 2"):
            act()
    pool.check_integrity()


def test_a_free_block_cannot_be_shared_nor_evicted() -> None:
    pool = BlockPool(2)
    with pytest.raises(ValueError, match="block 1 is free and cannot be shared"):
        pool.share(1)
    with pytest.raises(ValueError, match="block 1 is free; only a cached block"):
        pool.evict(1)


def test_a_held_block_cannot_be_evicted() -> None:
    pool = BlockPool(1)
    pool.share(pool.take())
    with pytest.raises(ValueError, match="block 0 is held 2 times; only a cached block"):
        pool.evict(0)


def test_an_empty_pool_gives_nothing_even_while_blocks_are_cached() -> None:
    pool = BlockPool(2)
    pool.release(pool.take(), keep=True)
    pool.take()
    with pytest.raises(ValueError, match="none of 2 blocks is free: 1 are held and 1 cached"):
        pool.take()
    with pytest.raises(ValueError, match="no block is cached"):
        BlockPool(1).oldest_cached()


@pytest.mark.parametrize("blocks", [0, -3])
def test_a_pool_without_blocks_is_refused(blocks: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        BlockPool(blocks)


@pytest.mark.parametrize(
    "damage",
    [
        lambda pool: pool._free.append(0),
        lambda pool: pool._free.pop(),
        lambda pool: pool._references.__setitem__(0, 2),
        lambda pool: pool._references.__setitem__(2, 1),
        lambda pool: pool._cached.__setitem__(3, None),
        lambda pool: pool._cached.clear(),
        lambda pool: pool._free.reverse(),
    ],
)
def test_damaged_books_are_noticed(damage) -> None:  # type: ignore[no-untyped-def]
    pool = BlockPool(6)
    pool.take()
    pool.take()
    pool.release(1, keep=True)
    pool.check_integrity()
    damage(pool)
    with pytest.raises(AssertionError):
        pool.check_integrity()


moves = st.lists(
    st.tuples(st.sampled_from(["take", "share", "keep", "free", "evict"]), st.integers(0, 4)),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(moves)
def test_any_history_agrees_with_a_plain_count(history: list[tuple[str, int]]) -> None:
    pool = BlockPool(5)
    counts: dict[int, int] = {}
    cached: list[int] = []  # oldest first
    for move, block in history:
        if move == "take":
            free = sorted(set(range(5)) - counts.keys() - set(cached))
            if free:
                assert pool.take() == free[0]
                counts[free[0]] = 1
            else:
                with pytest.raises(ValueError):
                    pool.take()
        elif move == "share" and (block in counts or block in cached):
            pool.share(block)
            counts[block] = counts.get(block, 0) + 1
            cached = [other for other in cached if other != block]
        elif move in ("keep", "free") and block in counts:
            pool.release(block, keep=move == "keep")
            counts[block] -= 1
            if counts[block] == 0:
                del counts[block]
                cached += [block] if move == "keep" else []
        elif move == "evict" and cached:
            assert pool.oldest_cached() == cached[0]
            pool.evict(cached.pop(0))
        pool.check_integrity()
        assert [pool.references(b) for b in range(5)] == [counts.get(b, 0) for b in range(5)]
        assert [pool.is_cached(b) for b in range(5)] == [b in cached for b in range(5)]
        assert pool.held == len(counts)
        assert pool.available == 5 - len(counts)
