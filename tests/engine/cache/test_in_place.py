"""Single rows that attend in C where keys and values lie, in both layouts."""

from __future__ import annotations

import pytest
import torch
from test_paged_attention import KV_HEADS, LAYERS, TEXTS, WIDTH, check, make_cache, run

from engine.cache.contiguous import ContiguousCache
from engine.cache.in_place import InPlaceSpan, reads_in_place
from engine.cache.kv_cache import KVCache
from engine.cache.storage import KVStorage

pytestmark = pytest.mark.usefixtures("compiled")


def slots(bits: int = 0, dtype: torch.dtype = torch.float32) -> ContiguousCache:
    return ContiguousCache(KVStorage(LAYERS, 6, KV_HEADS, 60, WIDTH, bits, dtype))


def filled(cache: KVCache) -> KVCache:
    """All but the last six tokens of every text, each in a slot or in blocks of its own."""
    for sequence, text in enumerate(TEXTS):
        cache.admit(sequence, tuple(text[:-6] or text[:1]), len(text))
        left = max(len(text) - 6, 1) - cache.length(sequence)
        run(cache, TEXTS[: sequence + 1], [*([0] * sequence), left], None)
    return cache


@pytest.mark.parametrize("window", [None, 1, 5, 21])
@pytest.mark.parametrize("layout", ["contiguous", "paged"])
def test_rows_of_any_lengths_attend_together(layout: str, window: int | None) -> None:
    """One call for all of them, wherever they lie: after one left, its slot stays between."""
    cache = filled(slots() if layout == "contiguous" else make_cache(4, sharing=True))
    starts = [cache.length(sequence) for sequence in range(len(TEXTS))]
    spans = cache.spans(range(len(TEXTS)), starts, [1] * len(TEXTS), window, torch.float32)
    assert [type(span) for span in spans] == [InPlaceSpan]
    check(cache, TEXTS, [1] * len(TEXTS), window)
    rows = [sequence for sequence in range(len(TEXTS)) if sequence != 1]
    cache.free(1)
    starts = [cache.length(sequence) for sequence in rows]
    (span,) = cache.spans(rows, starts, [1] * len(rows), window, torch.float32)
    assert isinstance(span, InPlaceSpan) and span.rows == len(rows)


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("layout", ["contiguous", "paged"])
def test_rows_of_a_draft_come_out_as_each_would_alone(layout: str, window: int | None) -> None:
    """Four rows of every sequence in one pass, to the last bit what each gives in a pass of its
    own; a cache that is not read in place goes by sequence as before."""
    cache = filled(slots() if layout == "contiguous" else make_cache(4, sharing=True))
    ids, count = range(len(TEXTS)), 4
    starts = [cache.length(sequence) - min(count, cache.length(sequence)) for sequence in ids]
    counts = [cache.length(sequence) - start for sequence, start in zip(ids, starts, strict=True)]
    query = torch.randn(sum(counts), 2 * KV_HEADS, WIDTH)
    (span,) = cache.spans(ids, starts, counts, window, torch.float32, by_row=True)
    assert isinstance(span, InPlaceSpan) and span.rows == sum(counts) > len(counts)
    together = span.attend(0, query)
    row = 0
    for sequence, start, rows in zip(ids, starts, counts, strict=True):
        for place in range(rows):
            (one,) = cache.spans([sequence], [start + place], [1], window, torch.float32)
            assert torch.equal(one.attend(0, query[row : row + 1])[0], together[row])
            row += 1
    narrow = slots(bits=8)
    narrow.admit(0, (1, 2, 3), 9)
    narrow.append([0], [[1, 2, 3]])
    assert not isinstance(
        narrow.spans([0], [0], [3], window, torch.float32, by_row=True)[0], InPlaceSpan
    )


def test_a_row_of_prefill_beside_longer_ones_goes_its_own_way() -> None:
    cache = slots()
    for sequence, text in enumerate(TEXTS):
        cache.admit(sequence, tuple(text), len(text))
    check(cache, TEXTS, [7, 1, 2, 5], None)
    check(cache, TEXTS, [1, 1, 1, 9], None)


@pytest.mark.parametrize(
    ("bits", "dtype", "taken"),
    [
        (0, torch.float32, True),
        (0, torch.bfloat16, True),
        (16, torch.bfloat16, True),
        (16, torch.float32, False),
        (8, torch.bfloat16, False),
        (4, torch.float32, False),
    ],
)
def test_only_vectors_kept_as_they_are_computed_are_read_in_place(
    bits: int, dtype: torch.dtype, taken: bool
) -> None:
    storage = KVStorage(1, 2, 1, 8, 32, bits, dtype)
    assert reads_in_place(storage, dtype) == taken
    if taken:
        other = torch.float16 if dtype == torch.bfloat16 else torch.bfloat16
        assert not reads_in_place(storage, other)
    assert not reads_in_place(KVStorage(1, 2, 1, 8, 24, bits, dtype), dtype)
