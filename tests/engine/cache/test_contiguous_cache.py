"""The contiguous cache against a dictionary of lists, and its attention against the naive form."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.cache.contiguous import MAP_CELL, ContiguousCache
from engine.cache.storage import KVStorage
from engine.kv_format import KV_WIDTHS
from engine.page_map import CELL_SIGNS
from kernels.attention.mask import visible
from kernels.attention.reference import attention as naive

LAYERS, SLOTS, HEADS, CAPACITY, WIDTH = 2, 3, 2, 6, 4


def make(
    slots: int = SLOTS,
    capacity: int = CAPACITY,
    heads: int = HEADS,
    width: int = WIDTH,
    bits: int = 0,
    dtype: torch.dtype = torch.float32,
) -> ContiguousCache:
    return ContiguousCache(KVStorage(LAYERS, slots, heads, capacity, width, bits, dtype))


def enter(cache: ContiguousCache, sequence: int, most: int = CAPACITY) -> None:
    assert cache.admit(sequence, [0], most) == 0


def held(cache: ContiguousCache, layer: int, sequence: int) -> tuple[Tensor, Tensor]:
    """Keys and values [kv_heads, length, D] of one sequence."""
    slot = cache.slot(sequence)
    places = slice(0, cache.length(sequence))
    keys, values = cache._storage.view(layer, slice(slot, slot + 1), places)
    return keys[0], values[0]


Model = dict[int, list[float]]
"""Sequence -> the mark each of its tokens was written with."""


def write(cache: ContiguousCache, sequence: int, marks: list[float]) -> None:
    addresses = cache.append([sequence], [[0] * len(marks)])
    base = torch.tensor(marks)[:, None, None].expand(-1, HEADS, WIDTH)
    heads = torch.arange(HEADS)[None, :, None] / 10
    for layer in range(LAYERS):
        cache.write(layer, addresses, base + heads + layer * 1000, -(base + heads + layer * 1000))


def check(cache: ContiguousCache, model: Model) -> None:
    cache.check_integrity()
    assert cache.held_tokens == sum(len(marks) for marks in model.values())
    assert cache.reserved_tokens == len(model) * CAPACITY
    for sequence, marks in model.items():
        assert cache.length(sequence) == len(marks)
        for layer in range(LAYERS):
            keys, values = held(cache, layer, sequence)
            heads = torch.arange(HEADS)[:, None] / 10
            expected = torch.tensor(marks) + heads + layer * 1000
            assert torch.equal(keys, expected[:, :, None].expand(-1, -1, WIDTH))
            assert torch.equal(values, -keys)


actions = st.lists(
    st.tuples(
        st.sampled_from(["admit", "append", "rewind", "free"]),
        st.integers(0, 4),
        st.integers(0, CAPACITY + 1),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(actions)
def test_any_history_leaves_every_sequence_its_own_tokens(
    history: list[tuple[str, int, int]],
) -> None:
    cache, model, mark = make(), Model(), 0.0
    for action, sequence, amount in history:
        if action == "admit":
            room = len(model) < SLOTS and amount <= CAPACITY
            assert cache.can_admit([0], amount) == room
            if room and sequence not in model:
                enter(cache, sequence, amount)
                model[sequence] = []
            else:
                with pytest.raises(ValueError):
                    cache.admit(sequence, [0], amount)
        elif sequence not in model:
            with pytest.raises(ValueError, match=f"sequence {sequence} is not in the cache"):
                cache.free(sequence)
        elif action == "append" and len(model[sequence]) + amount <= CAPACITY:
            marks = [mark + i for i in range(amount)]
            mark += amount
            write(cache, sequence, marks)
            model[sequence] += marks
        elif action == "append":
            with pytest.raises(ValueError, match="would grow to"):
                cache.append([sequence], [[0] * amount])
        elif action == "rewind" and amount <= len(model[sequence]):
            cache.rewind(sequence, amount)
            del model[sequence][amount:]
        elif action == "rewind":
            with pytest.raises(ValueError, match="cannot be rewound"):
                cache.rewind(sequence, amount)
        elif action == "free":
            cache.free(sequence)
            del model[sequence]
        check(cache, model)


def test_an_append_that_does_not_fit_changes_nothing() -> None:
    cache = make()
    enter(cache, 0)
    enter(cache, 1)
    cache.append([1], [[0] * 5])
    with pytest.raises(ValueError, match="sequence 1 would grow to 7 tokens; a slot holds 6"):
        cache.append([0, 1], [[0] * 3, [0] * 2])
    assert (cache.length(0), cache.length(1)) == (0, 5)


def test_what_stands_in_the_way_of_admission_is_said() -> None:
    cache = make(slots=1)
    with pytest.raises(ValueError, match="sequence 5 needs 7 tokens; a slot holds 6"):
        cache.admit(5, [0], 7)
    enter(cache, 5)
    with pytest.raises(ValueError, match="sequence 5 is in the cache already"):
        cache.admit(5, [0], 2)
    with pytest.raises(ValueError, match="all 1 slots are taken; free one first"):
        cache.admit(6, [0], 2)
    assert (cache.ever_fits(6), cache.ever_fits(7)) == (True, False)


def test_tokens_written_after_a_rewind_take_the_rejected_ones_place() -> None:
    cache = make()
    enter(cache, 7)
    write(cache, 7, [1.0, 2.0, 3.0])
    cache.rewind(7, 1)
    write(cache, 7, [9.0])
    check(cache, {7: [1.0, 9.0]})


def test_a_freed_slot_is_the_next_one_given() -> None:
    cache = make()
    for sequence in (0, 1, 2):
        enter(cache, sequence, 1)
    cache.free(1)
    cache.free(0)
    enter(cache, 3, 1)
    assert cache.slot(3) == 0


@pytest.mark.parametrize("bits", KV_WIDTHS)
def test_a_spoiled_sequence_leaves_no_fault_to_the_next(bits: int) -> None:
    """Its slot's last places are read, masked, beside a longer neighbour: 0 · NaN would be NaN."""
    cache = make(slots=2, capacity=8, bits=bits)
    for sequence, count in ((0, 8), (1, 8)):
        enter(cache, sequence, 8)
        fill = math.nan if sequence == 0 else 1.0
        vectors = torch.full((count, HEADS, WIDTH), fill)
        addresses = cache.append([sequence], [[0] * count])
        for layer in range(LAYERS):
            cache.write(layer, addresses, vectors, vectors)
    cache.free(0, spoiled=True)
    enter(cache, 2, 8)
    cache.rewind(1, 7)
    addresses = cache.append([2, 1], [[0], [0]])
    spans = cache.spans([2, 1], [0, 7], [1, 1], None, torch.float32)
    ones = torch.ones(2, HEADS, WIDTH)
    cache.write(0, addresses, ones, ones)
    attended = torch.cat([span.attend(0, ones[: span.rows]) for span in spans])
    torch.testing.assert_close(attended, torch.ones(2, HEADS * WIDTH), rtol=0, atol=2e-3)


TOLERANCE = {torch.float32: 3e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@pytest.mark.parametrize("bits", KV_WIDTHS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize(
    ("starts", "counts"),
    [([20, 4, 33], [1, 1, 1]), ([0, 0, 0], [7, 1, 30]), ([9, 30, 0], [4, 1, 9])],
)
def test_rows_attend_over_what_the_cache_says_it_holds(
    bits: int, dtype: torch.dtype, window: int | None, starts: list[int], counts: list[int]
) -> None:
    """Grouped heads, 6 on 2; decode, prefill, and both in one pass."""
    cache = make(3, 40, 2, 16, bits, dtype)
    generator = torch.Generator().manual_seed(bits)

    def draw(tokens: int, heads: int) -> Tensor:
        return torch.randn(tokens, heads, 16, generator=generator).to(dtype)

    for sequence, start in enumerate(starts):
        cache.admit(sequence, [0], 40)
        if start:
            cache.write(1, cache.append([sequence], [[0] * start]), draw(start, 2), draw(start, 2))
    total = sum(counts)
    addresses = cache.append([0, 1, 2], [[0] * count for count in counts])
    spans = cache.spans([0, 1, 2], starts, counts, window, dtype)
    assert sum(span.rows for span in spans) == total
    cache.write(1, addresses, draw(total, 2), draw(total, 2))
    query = draw(total, 6)
    parts = query.split_with_sizes([span.rows for span in spans])
    got = torch.cat([span.attend(1, part) for span, part in zip(spans, parts, strict=True)])
    assert (got.dtype, got.shape) == (dtype, (total, 96))
    truth = []
    for sequence, part in enumerate(query.float().split_with_sizes(counts)):
        keys, values = (side[None].float() for side in held(cache, 1, sequence))
        start, count = starts[sequence], counts[sequence]
        places = torch.arange(start, start + count)[None]
        seen = visible(places, 0, start + count, window)
        truth.append(naive(part[None], keys, values, seen)[0])
    torch.testing.assert_close(got.float(), torch.cat(truth), rtol=0, atol=TOLERANCE[dtype])


def test_decode_rows_of_neighbours_are_read_in_place_in_one_call() -> None:
    cache = make()
    for sequence in (10, 11, 12):
        enter(cache, sequence)
        write(cache, sequence, [float(sequence)] * 2)
    cache.append([10, 11, 12], [[0]] * 3)
    assert len(cache.spans([10, 11, 12], [2, 2, 2], [1, 1, 1], None, torch.float32)) == 1
    assert len(cache.spans([10, 12], [2, 2], [1, 1], None, torch.float32)) == 2


@pytest.mark.parametrize("bits", KV_WIDTHS)
def test_a_token_takes_its_vectors_bytes(bits: int) -> None:
    cache = make(bits=bits)
    vector = {0: 16, 16: 8, 8: 6, 4: 6}[bits]  # 4 numbers: 4 x 4, 4 x 2, 4 + 2, 2 + 2 + 2
    assert cache.token_bytes == 2 * LAYERS * HEADS * vector
    assert cache.nbytes == SLOTS * CAPACITY * cache.token_bytes


def test_the_page_map_shows_slots_in_cells() -> None:
    cache = make(slots=2, capacity=2 * MAP_CELL + 3)
    enter(cache, 0, 5)
    cache.append([0], [[0] * (MAP_CELL + 1)])
    page_map = cache.page_map()
    signs = [CELL_SIGNS[cell] for cell in ("full", "tail", "reserved", "free", "free", "free")]
    assert page_map.cells == "".join(signs)
    assert (page_map.held_tokens, page_map.reserved_tokens) == (MAP_CELL + 1, 2 * MAP_CELL + 3)


def test_damaged_books_are_noticed() -> None:
    cache = make()
    enter(cache, 0, 2)
    cache._free.append(0)
    with pytest.raises(AssertionError):
        cache.check_integrity()
