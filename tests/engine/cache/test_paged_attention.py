"""Attention through a paged cache against plain attention over lists of vectors."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from engine.cache.contiguous import ContiguousCache
from engine.cache.kv_cache import KVCache
from engine.cache.paged import PagedCache
from engine.cache.storage import KVStorage
from kernels.attention.reference import attention

LAYERS, HEADS, KV_HEADS, WIDTH = 2, 6, 2, 16
SYSTEM = list(range(1, 23))


@pytest.fixture(params=["torch", "C"], autouse=True)
def way(request: pytest.FixtureRequest) -> None:
    """What single rows attend by."""
    if request.param == "C":
        request.getfixturevalue("compiled")


@functools.cache
def vector(token: int, position: int, layer: int, kind: int) -> Tensor:
    """Query (kind 0), key (1) or value (2): it depends on nothing else. [heads, WIDTH]."""
    seed = ((token * 500 + position) * 4 + layer) * 4 + kind
    heads = HEADS if kind == 0 else KV_HEADS
    return torch.randn((heads, WIDTH), generator=torch.Generator().manual_seed(seed))


def vectors(tokens: Sequence[int], layer: int, kind: int) -> Tensor:
    """[T, heads, WIDTH]."""
    return torch.stack([vector(token, i, layer, kind) for i, token in enumerate(tokens)])


def expected(tokens: Sequence[int], start: int, layer: int, window: int | None) -> Tensor:
    """Rows start .. end of causal attention over all of `tokens`: [rows, HEADS · WIDTH]."""
    query, key, value = (vectors(tokens, layer, kind) for kind in range(3))
    position = torch.arange(len(tokens))
    behind = position[start:, None] - position
    seen = (behind >= 0) & (behind < (window or len(tokens)))
    return attention(
        query[None, start:], key.transpose(0, 1)[None], value.transpose(0, 1)[None], seen[None]
    )[0]


def run(
    cache: KVCache, texts: Sequence[Sequence[int]], counts: Sequence[int], window: int | None
) -> list[Tensor]:
    """One pass: each sequence's next `counts[b]` tokens of its text; gives each layer's rows."""
    ids = range(len(texts))
    starts = [cache.length(sequence) for sequence in ids]
    order = sorted((s for s in ids if counts[s]), key=cache.slot)
    runs = [texts[s][starts[s] : starts[s] + counts[s]] for s in order]
    addresses = cache.append(order, runs)
    spans = cache.spans(
        order, [starts[s] for s in order], [counts[s] for s in order], window, torch.float32
    )
    outputs = []
    for layer in range(LAYERS):
        parts = [
            torch.cat(
                [
                    vectors(texts[s][: starts[s] + counts[s]], layer, kind)[starts[s] :]
                    for s in order
                ]
            )
            for kind in range(3)
        ]
        cache.write(layer, addresses, parts[1], parts[2])
        queries = parts[0].split([span.rows for span in spans])
        outputs.append(
            torch.cat([span.attend(layer, q) for span, q in zip(spans, queries, strict=True)])
        )
    return outputs


def check(
    cache: KVCache,
    texts: Sequence[Sequence[int]],
    counts: Sequence[int],
    window: int | None,
    tolerance: float = 2e-6,
) -> None:
    starts = [cache.length(sequence) for sequence in range(len(texts))]
    outputs = run(cache, texts, counts, window)
    order = sorted((s for s in range(len(texts)) if counts[s]), key=cache.slot)
    for layer, output in enumerate(outputs):
        right = torch.cat(
            [expected(texts[s][: starts[s] + counts[s]], starts[s], layer, window) for s in order]
        )
        torch.testing.assert_close(output, right, atol=tolerance, rtol=tolerance)


def make_cache(size: int, sharing: bool, bits: int = 0, blocks: int = 0) -> PagedCache:
    storage = KVStorage(
        LAYERS, blocks or -(-160 // size) + 6, KV_HEADS, size, WIDTH, bits, torch.float32
    )
    return PagedCache(storage, 60, sharing)


TEXTS = [
    [*SYSTEM, *range(100, 124)],
    [*SYSTEM, *range(200, 203)],
    [7, 8, 9],
    [*SYSTEM[:20], *range(300, 318)],
]


@pytest.mark.parametrize("window", [None, 1, 5, 21])
@pytest.mark.parametrize("sharing", [False, True])
@pytest.mark.parametrize("size", [1, 2, 5, 16, 256])
def test_every_row_of_every_pass_attends_to_its_own_tokens(
    size: int, sharing: bool, window: int | None
) -> None:
    """Prefill alone, prefill in chunks beside others, then decode together, past block ends."""
    cache = make_cache(size, sharing)
    known = []
    for sequence, text in enumerate(TEXTS):
        prompt = text[: len(text) * 2 // 3]
        known.append(cache.admit(sequence, tuple(prompt), len(text)))
        left = len(prompt) - known[sequence]
        started = TEXTS[: sequence + 1]
        while left:
            count = min(left, 7)
            check(cache, started, [*([0] * sequence), count], window)
            left -= count
    assert (max(known) > 0) == (sharing and size < 256)  # no prompt fills a block of 256
    for _ in range(6):
        more = [int(cache.length(s) < len(text)) for s, text in enumerate(TEXTS)]
        check(cache, TEXTS, more, window)
    cache.check_integrity()


def test_prefill_pieces_and_single_rows_go_through_one_pass() -> None:
    cache = make_cache(4, sharing=True)
    for sequence, text in enumerate(TEXTS):
        cache.admit(sequence, tuple(text), len(text))
    check(cache, TEXTS, [9, 1, 1, 12], None)
    check(cache, TEXTS, [1, 10, 2, 1], None)
    check(cache, TEXTS, [1, 1, 0, 1], None)


def test_blocks_out_of_order_are_read_in_order() -> None:
    cache = make_cache(3, sharing=False, blocks=40)
    for sequence in range(10, 16):
        cache.admit(sequence, (1,) * 6, 6)
    for sequence in (14, 10, 12):
        cache.free(sequence)
    for sequence, text in enumerate(TEXTS[:2]):
        cache.admit(sequence, tuple(text[:20]), len(text))
    blocks = list(cache._tables[0].blocks)
    assert blocks != list(range(blocks[0], blocks[0] + len(blocks)))
    check(cache, TEXTS[:2], [20, 20], None)
    check(cache, TEXTS[:2], [1, 1], None)


@pytest.mark.parametrize("window", [None, 9])
def test_a_rewound_and_copied_block_is_read_where_it_now_lies(window: int | None) -> None:
    cache = make_cache(4, sharing=True)
    first, second = [*SYSTEM[:12]], [*SYSTEM[:12], 50, 51, 52]
    cache.admit(0, tuple(first), 20)
    check(cache, [first], [12], window)
    cache.admit(1, tuple(second), 20)
    check(cache, [first, second], [0, 2], window)
    check(cache, [first, second], [0, 1], window)
    longer = [*first, 70]
    check(cache, [longer, second], [1, 0], window)  # a decode step: its pairs are remembered
    cache.rewind(0, 10)
    changed = [*first[:10], 60, 61, 62]
    check(cache, [changed, second], [1, 0], window)
    assert cache.copies == 1
    check(cache, [changed, second], [1, 0], window)
    check(cache, [changed, second], [1, 0], window)
    cache.check_integrity()


def test_a_decode_step_after_a_rewind_does_not_use_what_was_remembered() -> None:
    """As many blocks as at the last decode step, and the last of them another one."""
    cache = make_cache(4, sharing=True)
    text, other = [*SYSTEM[:12]], [*SYSTEM[:12], 50, 51]
    cache.admit(0, tuple(text[:11]), 20)
    check(cache, [text], [11], None)
    check(cache, [text], [1], None)
    assert cache.admit(1, tuple(other), 20) == 12
    check(cache, [text, other], [0, 2], None)
    cache.rewind(0, 11)
    check(cache, [[*text[:11], 90], other], [1, 0], None)
    assert cache.copies == 1
    check(cache, [text, [*other, 91]], [0, 1], None)


def test_the_place_of_a_freed_sequence_is_not_taken_for_its_own() -> None:
    """The same row of the same length in other blocks: what was remembered is of no use."""
    cache = make_cache(4, sharing=False)
    for turn, text in enumerate(([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12])):
        cache.admit(0, tuple(text[:5]), 6)
        check(cache, [text], [5], None)
        check(cache, [text], [1], None)
        cache.free(0)
        cache.admit(8 + turn, (1,) * 3, 3)  # takes the lowest block


@pytest.mark.parametrize(("bits", "tolerance"), [(16, 0.03), (8, 0.05), (4, 0.6)])
@pytest.mark.parametrize("size", [1, 16])
def test_fewer_bits_keep_the_same_vectors_roughly(size: int, bits: int, tolerance: float) -> None:
    cache = make_cache(size, sharing=True, bits=bits)
    for sequence, text in enumerate(TEXTS[:2]):
        found = cache.admit(sequence, tuple(text[:-1]), len(text))
        started = TEXTS[: sequence + 1]
        check(cache, started, [*([0] * sequence), len(text) - 1 - found], None, tolerance)
    check(cache, TEXTS[:2], [1, 1], None, tolerance)


@pytest.mark.parametrize("bits", [0, 8, 4])
def test_both_layouts_attend_alike_at_every_width(bits: int) -> None:
    paged = make_cache(8, sharing=False, bits=bits)
    slots = ContiguousCache(KVStorage(LAYERS, 4, KV_HEADS, 60, WIDTH, bits, torch.float32))
    texts = [TEXTS[0], TEXTS[1], TEXTS[3]]
    for sequence, text in enumerate(texts):
        for cache in (paged, slots):
            cache.admit(sequence, tuple(text[:-3]), len(text))
    for counts in ([len(text) - 3 for text in texts], *[[1] * 3] * 3):
        left, right = (run(cache, texts, counts, None) for cache in (paged, slots))
        for one, other in zip(left, right, strict=True):
            torch.testing.assert_close(one, other, atol=2e-6, rtol=2e-6)


def test_a_failed_pass_leaves_nothing_that_the_next_could_read() -> None:
    """What is not a number past a sequence's end would come through the mask: 0 · NaN is NaN."""
    cache = make_cache(16, sharing=True)
    cache.admit(5, tuple(SYSTEM), 40)
    addresses = cache.append([5], [SYSTEM])
    broken = torch.full((len(SYSTEM), KV_HEADS, WIDTH), torch.nan)
    for layer in range(LAYERS):
        cache.write(layer, addresses, broken, broken)
    cache.free(5, spoiled=True)
    cache.admit(0, (1, 2, 3), 9)
    cache.admit(1, tuple(SYSTEM), 40)
    texts = [[1, 2, 3, 4], [*SYSTEM, 90]]
    check(cache, texts, [3, 22], None)
    check(cache, texts, [1, 1], None)
