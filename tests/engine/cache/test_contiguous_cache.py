"""The contiguous cache against a dictionary of lists."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cache.kv_cache import ContiguousCache

LAYERS, SLOTS, HEADS, CAPACITY, WIDTH = 2, 3, 2, 6, 4


def make() -> ContiguousCache:
    return ContiguousCache(LAYERS, SLOTS, HEADS, CAPACITY, WIDTH, torch.float32)


Model = dict[int, list[float]]
"""Sequence -> the mark each of its tokens was written with."""


def write(cache: ContiguousCache, sequence: int, marks: list[float]) -> None:
    addresses = cache.append([sequence], [len(marks)])
    base = torch.tensor(marks)[:, None, None].expand(-1, HEADS, WIDTH)
    heads = torch.arange(HEADS)[None, :, None] / 10
    for layer in range(LAYERS):
        cache.write(layer, addresses, base + heads + layer * 1000, -(base + heads + layer * 1000))


def check(cache: ContiguousCache, model: Model) -> None:
    cache.check_integrity()
    for sequence, marks in model.items():
        assert cache.length(sequence) == len(marks)
        if not marks:
            continue
        reading = cache.read([sequence], 0, len(marks))
        for layer in range(LAYERS):
            for head in range(HEADS):
                expected = torch.tensor(marks) + head / 10 + layer * 1000
                keys = reading.keys[layer][0, head]
                assert torch.equal(keys, expected[:, None].expand(-1, WIDTH))
                assert torch.equal(reading.values[layer][0, head], -keys)


actions = st.lists(
    st.tuples(
        st.sampled_from(["allocate", "append", "rewind", "free"]),
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
        if action == "allocate":
            possible = sequence not in model and len(model) < SLOTS and amount <= CAPACITY
            assert cache.can_allocate(amount) == (len(model) < SLOTS and amount <= CAPACITY)
            if possible:
                cache.allocate(sequence, amount)
                model[sequence] = []
            else:
                with pytest.raises(ValueError):
                    cache.allocate(sequence, amount)
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
                cache.append([sequence], [amount])
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
    cache.allocate(0, 6)
    cache.allocate(1, 6)
    cache.append([1], [5])
    with pytest.raises(ValueError, match="sequence 1 would grow to 7 tokens; a slot holds 6"):
        cache.append([0, 1], [3, 2])
    assert (cache.length(0), cache.length(1)) == (0, 5)


def test_tokens_written_after_a_rewind_take_the_rejected_ones_place() -> None:
    cache = make()
    cache.allocate(7, CAPACITY)
    write(cache, 7, [1.0, 2.0, 3.0])
    cache.rewind(7, 1)
    write(cache, 7, [9.0])
    check(cache, {7: [1.0, 9.0]})


def test_neighbours_are_read_as_one_view_of_the_cache_itself() -> None:
    cache = make()
    for sequence in (10, 11, 12):
        cache.allocate(sequence, CAPACITY)
    write(cache, 11, [1.0, 2.0])
    write(cache, 12, [5.0])
    reading = cache.read([11, 12], 0, 2)
    assert reading.keys[0].shape == (2, HEADS, 2, WIDTH)
    assert reading.keys[0][:, 0, 0, 0].tolist() == [1.0, 5.0]
    write(cache, 12, [6.0])
    assert float(reading.keys[0][1, 0, 1, 0]) == 6.0  # a view sees later writes


def test_a_freed_slot_is_the_next_one_given() -> None:
    cache = make()
    for sequence in (0, 1, 2):
        cache.allocate(sequence, 1)
    cache.free(1)
    cache.free(0)
    cache.allocate(3, 1)
    assert cache.slot(3) == 0


def test_bytes_are_those_of_keys_and_values() -> None:
    assert make().nbytes == 2 * LAYERS * SLOTS * HEADS * CAPACITY * WIDTH * 4


@pytest.mark.parametrize(("slots", "capacity"), [(0, 4), (1, 0), (-1, 4)])
def test_a_cache_that_holds_nothing_is_refused(slots: int, capacity: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ContiguousCache(1, slots, 1, capacity, 4, torch.float32)


def test_damaged_books_are_noticed() -> None:
    cache = make()
    cache.allocate(0, 2)
    cache._free.append(0)
    with pytest.raises(AssertionError):
        cache.check_integrity()
