"""Block tables drawn at random, with what a pool holds, for tests of paged attention."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from engine.cache.block_pairs import BlockPairs
from engine.cache.storage import KVStorage


@dataclass(frozen=True)
class Tables:
    """Rows' block tables and lengths over `blocks` blocks."""

    tables: list[list[int]]
    lengths: list[int]
    block_size: int
    blocks: int


def draw_tables(
    rng: random.Random, lengths: list[int], block_size: int, shared: int = 0, spare: int = 0
) -> Tables:
    """Scattered blocks; the first `shared` full blocks of a row are those of the row before, as far
    as both have them. `spare` blocks of the pool are nobody's."""
    needs = [-(-length // block_size) for length in lengths]
    pool = list(range(sum(needs) + spare))
    rng.shuffle(pool)
    tables: list[list[int]] = []
    for length, need in zip(lengths, needs, strict=True):
        common = min(shared, (length - 1) // block_size) if tables else 0
        common = min(common, lengths[len(tables) - 1] // block_size if tables else 0)
        table = tables[-1][:common] if tables else []
        tables.append(table + [pool.pop() for _ in range(need - common)])
    return Tables(tables, lengths, block_size, sum(needs) + spare)


def pairs_of(case: Tables, window: int | None = None) -> BlockPairs:
    """As a paged cache would lay them out, one pair at a time."""
    triples: list[tuple[int, int, int]] = []
    counts: list[int] = []
    for row, (table, length) in enumerate(zip(case.tables, case.lengths, strict=True)):
        first = 0 if window is None else max(0, length - window) // case.block_size
        kept = [(table[i], row, i * case.block_size) for i in range(first, len(table))]
        counts.append(len(kept))
        triples += kept
    blocks, owners, begins = (torch.tensor(column) for column in zip(*triples, strict=True))
    return BlockPairs(
        rows=len(case.tables),
        blocks=blocks,
        owners=owners,
        begins=begins,
        counts=tuple(counts),
        exclusive=len(set(blocks.tolist())) == len(triples),
    )


def fill(storage: KVStorage, seed: int) -> None:
    """Every place of every layer gets a random vector."""
    generator = torch.Generator().manual_seed(seed)
    tokens = storage.groups * storage.places
    group = torch.arange(storage.groups)[:, None, None]
    head = torch.arange(storage.kv_heads)
    place = torch.arange(storage.places)[:, None]
    rows = ((group * storage.kv_heads + head) * storage.places + place).flatten()
    shape = (tokens, storage.kv_heads, storage.head_dim)
    for layer in range(storage.layers):
        keys, values = (torch.randn(shape, generator=generator).to(storage.dtype) for _ in range(2))
        storage.write(layer, rows, keys, values)
