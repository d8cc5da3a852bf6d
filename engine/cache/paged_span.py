"""Decode rows over a block pool: one pass's index tensors, made once and used by every layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache.block_pairs import BlockPairs
from engine.cache.readings import Gathered
from engine.cache.spans import DenseSpan
from engine.cache.storage import KEYS, VALUES, KVStorage, Side
from kernels.attention import paged
from kernels.attention.paged import Pattern, Stack

FEWEST_PLACES = 4
"""Blocks shorter than this are too small to multiply one by one: their vectors are gathered."""
CHUNK_BYTES = 1 << 20
"""Blocks that cannot be read in place are made in float32 this much at a time (one, if larger)."""
DENSEST = 1.25
"""Blocks are read in place where the range they span is at most this many times their number."""


def decode_form(block_size: int) -> str:
    """The name of the form that decode attention takes over blocks of this size."""
    return "paged-queries" if block_size >= FEWEST_PLACES else "paged-vectors"


class PagedSpan:
    """One row of each of B sequences, over their blocks where these lie.

    `lengths` are the sequences' tokens with this pass's; under a sliding `window` a row sees the
    last `window` of them. `dtype` is that of the queries.
    """

    def __init__(
        self,
        storage: KVStorage,
        pairs: BlockPairs,
        lengths: Sequence[int],
        window: int | None,
        dtype: torch.dtype,
    ) -> None:
        if len(lengths) != pairs.rows:
            raise ValueError(f"{len(lengths)} lengths for {pairs.rows} rows; one each")
        self.rows = pairs.rows
        make = _OverPool.of if storage.places >= FEWEST_PLACES else _RowByRow.of
        self._form: _OverPool | _RowByRow = make(storage, pairs, lengths, window, dtype)

    def attend(self, layer: int, query: Tensor) -> Tensor:
        return self._form.attend(layer, query)


Where = slice | Tensor
"""Blocks of the pool: a range, or a list [U] int64."""


@dataclass(frozen=True)
class _Side:
    """Keys or values of one layer, in the blocks of each stack.

    With `room` [n] float32 they are made in it, as many blocks at a time as it holds; without, they
    are read as they are kept.
    """

    storage: KVStorage
    side: Side
    layer: int
    stacks: tuple[Where, ...]
    room: Tensor | None

    def pieces(self, stack: int) -> Iterator[Tensor]:
        storage, where = self.storage, self.stacks[stack]
        if self.room is None:
            yield storage.blocks(self.side, self.layer, where)
            return
        shape = (storage.kv_heads, storage.places, storage.head_dim)
        room = self.room.view(-1, *shape)
        low, stop = (where.start, where.stop) if isinstance(where, slice) else (0, len(where))
        for first in range(low, stop, len(room)):
            chosen = slice(first, min(first + len(room), stop))
            out = room[: chosen.stop - first]
            groups = chosen if isinstance(where, slice) else where[chosen]
            storage.read(self.side, self.layer, groups, slice(0, storage.places), out)
            yield out


@dataclass(frozen=True)
class _OverPool:
    """Queries gathered to the blocks. `room` is where blocks are made that cannot be multiplied as
    they are kept: at most CHUNK_BYTES or one block, and it lives as long as the pass."""

    storage: KVStorage
    pattern: Pattern
    stacks: tuple[Where, ...]
    room: Tensor | None
    widens: tuple[bool, bool]
    """Whether keys and values are made in the room."""

    @classmethod
    def of(
        cls,
        storage: KVStorage,
        pairs: BlockPairs,
        lengths: Sequence[int],
        window: int | None,
        dtype: torch.dtype,
    ) -> _OverPool:
        device = pairs.blocks.device
        laid = _lay_out(pairs, storage.kv_heads)
        kept = torch.tensor(lengths, dtype=torch.int64, device=device)
        pattern = Pattern(
            tuple(
                Stack(placed.owners.shape[1], placed.queries, _mask(placed, kept, window, storage))
                for placed in laid.stacks
            ),
            laid.seen,
            laid.offsets,
            storage.places,
        )
        as_kept = storage.plain and paged.multiplies(storage.kept, storage.device)
        widens = (storage.kept != torch.float32, not as_kept)
        room = None
        if any(widens):
            block = storage.kv_heads * storage.places * storage.head_dim  # numbers of one
            most = max(placed.owners.shape[0] for placed in laid.stacks)
            fit = min(max(CHUNK_BYTES // (4 * block), 1), most)
            room = torch.empty(fit * block, dtype=torch.float32, device=device)
        return cls(storage, pattern, tuple(placed.where for placed in laid.stacks), room, widens)

    def attend(self, layer: int, query: Tensor) -> Tensor:
        keys, values = (
            _Side(self.storage, side, layer, self.stacks, self.room if widens else None)
            for side, widens in zip((KEYS, VALUES), self.widens, strict=True)
        )
        return paged.attention(query, self.pattern, keys, values)


@dataclass(frozen=True)
class _Placed:
    """Some blocks and the rows that see them: `owners` and `begins` [U, R], of each block's rows
    and of its first position in their sequences; `queries` as in the kernel's stacks."""

    where: Where
    owners: Tensor
    begins: Tensor
    queries: Tensor


@dataclass(frozen=True)
class _LaidOut:
    stacks: tuple[_Placed, ...]
    seen: Tensor
    offsets: Tensor


def _lay_out(pairs: BlockPairs, kv_heads: int) -> _LaidOut:
    """Blocks of one row in one stack, shared ones in stacks of 2, 4, 8 ... places: no block is
    multiplied by more than twice as many queries as it has."""
    device = pairs.blocks.device
    head = torch.arange(kv_heads, device=device)
    counts = torch.tensor(pairs.counts, dtype=torch.int64, device=device)
    starts = counts.cumsum(0) - counts  # [B], in pairs
    item = torch.empty(pairs.blocks.shape[0], kv_heads, dtype=torch.int64, device=device)
    stacks: list[_Placed] = []
    base = 0
    for chosen, places, nth in _by_sharers(pairs):
        blocks, owners, begins = (
            part if chosen is None else part[chosen]
            for part in (pairs.blocks, pairs.owners, pairs.begins)
        )
        where, count, local = _locate(blocks, places)
        slot = local if nth is None else local * places + nth
        owner_of = torch.zeros(count * places, dtype=torch.int64, device=device)
        owner_of.index_copy_(0, slot, owners)
        begin_of = torch.zeros_like(owner_of).index_copy_(0, slot, begins)
        owner_of, begin_of = owner_of.view(count, places), begin_of.view(count, places)
        queries = owner_of[:, None] * kv_heads + head[:, None]  # [U, kv, R]
        stacks.append(_Placed(where, owner_of, begin_of, queries.flatten()))
        first = local * (kv_heads * places) if nth is None else local * (kv_heads * places) + nth
        mine = (first + base)[:, None] + head * places  # [pairs, kv]
        item = mine if chosen is None else item.index_copy_(0, chosen, mine)
        base += count * kv_heads * places
    # Pair i of row b stands, for head h, at kv · start_b + h · count_b + (i - start_b).
    rank = torch.arange(item.shape[0], device=device) + (kv_heads - 1) * starts[pairs.owners]
    at = rank[:, None] + head * counts[pairs.owners][:, None]
    seen = torch.empty_like(item).flatten().index_copy_(0, at.flatten(), item.flatten())
    offsets = kv_heads * starts[:, None] + head * counts[:, None]
    return _LaidOut(tuple(stacks), seen, offsets.flatten())


def _by_sharers(pairs: BlockPairs) -> list[tuple[Tensor | None, int, Tensor | None]]:
    """Pairs by how many rows see their block: (indices of pairs, places, place of each pair).

    None for the indices means all; None for the places, that each block has one.
    """
    if pairs.exclusive:
        return [(None, 1, None)]
    _, which, sharers = torch.unique(pairs.blocks, return_inverse=True, return_counts=True)
    order = torch.argsort(which, stable=True)
    first = (sharers.cumsum(0) - sharers)[which[order]]
    nth = torch.empty_like(which)
    nth[order] = torch.arange(which.shape[0], device=which.device) - first
    found: list[tuple[Tensor | None, int, Tensor | None]] = []
    low, most = 0, int(sharers.max())
    places = 1
    while low < most:
        wanted = (sharers > low) & (sharers <= places)
        chosen = wanted[which].nonzero().flatten()
        if len(chosen):
            found.append((chosen, places, nth[chosen] if places > 1 else None))
        low, places = places, places * 2
    return found


def _locate(blocks: Tensor, places: int) -> tuple[Where, int, Tensor]:
    """Where the kernel reads `blocks` [n]: (a range or a list, its length U, each one's index)."""
    if places == 1:
        low, high = int(blocks.min()), int(blocks.max()) + 1
        if high - low <= DENSEST * len(blocks):
            return slice(low, high), high - low, blocks - low
        return blocks, len(blocks), torch.arange(len(blocks), device=blocks.device)
    distinct, local = torch.unique(blocks, return_inverse=True)
    low, high = int(distinct[0]), int(distinct[-1]) + 1
    if high - low == len(distinct):
        return slice(low, high), len(distinct), local
    return distinct, len(distinct), local


def _mask(
    placed: _Placed, lengths: Tensor, window: int | None, storage: KVStorage
) -> Tensor | None:
    """[U · kv, R, bs], 0 where a row sees a place and -inf elsewhere; None where all are seen."""
    place = torch.arange(storage.places, device=lengths.device)
    stop = (lengths[placed.owners] - placed.begins)[:, None, :, None]  # [U, 1, R, 1]
    seen = place < stop
    if window is not None:
        seen &= place >= stop - window
    if bool(seen.all()):
        return None
    hidden = torch.zeros(seen.shape, device=lengths.device).masked_fill_(~seen, -math.inf)
    return hidden.expand(-1, storage.kv_heads, -1, -1).flatten(0, 1)


@dataclass(frozen=True)
class _RowByRow:
    """Vectors gathered to each row: for blocks of a token or three."""

    spans: tuple[DenseSpan, ...]

    @classmethod
    def of(
        cls,
        storage: KVStorage,
        pairs: BlockPairs,
        lengths: Sequence[int],
        window: int | None,
        dtype: torch.dtype,
    ) -> _RowByRow:
        kind = dtype if storage.plain else torch.float32
        device = pairs.blocks.device
        head = torch.arange(storage.kv_heads, device=device)[:, None, None]
        place = torch.arange(storage.places, device=device)
        rows: list[Tensor] = []
        blocks_of = pairs.blocks.split_with_sizes(pairs.counts)
        begin_of = [int(begins[0]) for begins in pairs.begins.split_with_sizes(pairs.counts)]
        for blocks, begin, length in zip(blocks_of, begin_of, lengths, strict=True):
            vectors = (blocks[:, None] * storage.kv_heads + head) * storage.places + place
            first = begin if window is None else max(length - window, begin)
            rows.append(vectors.flatten(1)[:, first - begin : length - begin].flatten())
        most = max(row.shape[0] for row in rows)
        room = torch.empty((2, most * storage.head_dim), dtype=kind, device=device)
        return cls(
            tuple(DenseSpan(1, 1, Gathered(storage, row, room), None, False) for row in rows)
        )

    def attend(self, layer: int, query: Tensor) -> Tensor:
        return torch.cat(
            [span.attend(layer, query[row : row + 1]) for row, span in enumerate(self.spans)]
        )
