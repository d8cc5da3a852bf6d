"""Vectors that say which token they are, and after which beginning."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.cache.kv_cache import KVCache
from engine.cache.paged import PagedCache
from engine.cache.storage import KVStorage

LAYERS, HEADS, WIDTH = 2, 2, 3


def make_cache(
    blocks: int,
    block_size: int,
    capacity: int | None = None,
    sharing: bool = True,
    **options: object,
) -> PagedCache:
    storage = KVStorage(LAYERS, blocks, HEADS, block_size, WIDTH, 0, torch.float32)
    return PagedCache(storage, capacity or blocks * block_size, sharing, **options)  # type: ignore[arg-type]


def canaries(tokens: Sequence[int], start: int, stop: int) -> Tensor:
    """Keys [stop - start, HEADS, WIDTH] of `tokens` from `start` on: (beginning, position, head).

    Whole numbers below 2^24, which float32 holds exactly.
    """
    rows = [
        [
            (zlib.crc32(array("q", tokens[: i + 1]).tobytes()) >> 8, i, 7 * head)
            for head in range(HEADS)
        ]
        for i in range(start, stop)
    ]
    return torch.tensor(rows, dtype=torch.float32).view(stop - start, HEADS, WIDTH)


def layered(keys: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """What layer `layer` writes: no layer's keys are another's, nor its values."""
    return keys + 100 * layer, -keys - 100 * layer


def write(
    cache: KVCache,
    sequences: Sequence[int],
    runs: Sequence[Sequence[int]],
    whole: Sequence[Sequence[int]],
) -> None:
    """One pass: append each sequence's run, then write it; `whole` are all its tokens with it."""
    addresses = cache.append(sequences, runs)
    keys = torch.cat(
        [canaries(t, len(t) - len(run), len(t)) for t, run in zip(whole, runs, strict=True)]
        or [torch.zeros(0, HEADS, WIDTH)]
    )
    for layer in range(LAYERS):
        cache.write(layer, addresses, *layered(keys, layer))


def begin(cache: KVCache, sequence: int, prompt: Sequence[int], more: int = 0) -> int:
    """Admit and prefill; gives the tokens that were found."""
    known = cache.admit(sequence, tuple(prompt), len(prompt) + more)
    write(cache, [sequence], [prompt[known:]], [prompt])
    return known


def assert_holds(cache: PagedCache, sequence: int, tokens: Sequence[int]) -> None:
    """Every layer's vectors of `sequence`, read block by block, are those of `tokens`."""
    assert cache.length(sequence) == len(tokens)
    blocks = torch.tensor(list(cache._tables[sequence].blocks), dtype=torch.int64)
    expected = canaries(tokens, 0, len(tokens))
    for layer in range(LAYERS):
        views = cache._storage.view(layer, blocks, slice(0, cache.block_size))
        for found, right in zip(views, layered(expected, layer), strict=True):
            rows = found.transpose(1, 2).flatten(0, 1)  # [G · places, kv, D]
            assert torch.equal(rows[: len(tokens)], right), f"sequence {sequence}, layer {layer}"
