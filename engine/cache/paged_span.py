"""Decode rows over a block pool: one pass's index tensors, made once and used by every layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache.block_layout import BlockLayout, Where
from engine.cache.block_pairs import BlockPairs
from engine.cache.readings import Gathered
from engine.cache.spans import DenseSpan
from engine.cache.storage import KEYS, VALUES, KVStorage, Side
from kernels.attention import paged
from kernels.attention.paged import Pattern

FEWEST_PLACES = 4
"""Blocks shorter than this are too small to multiply one by one: their vectors are gathered."""
CHUNK_BYTES = 4 << 20
"""Blocks that cannot be read in place are made in float32 this much at a time (one, if larger)."""


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
        make = _OverPool if storage.places >= FEWEST_PLACES else _RowByRow.of
        self._form: _OverPool | _RowByRow = make(storage, pairs, lengths, window, dtype)

    def attend(self, layer: int, query: Tensor) -> Tensor:
        return self._form.attend(layer, query)


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

    @property
    def dtype(self) -> torch.dtype:
        return self.storage.kept if self.room is None else torch.float32

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


class _OverPool:
    """Queries gathered to the blocks. `room` is where blocks are made that cannot be multiplied as
    they are kept: at most CHUNK_BYTES or one block, and it lives as long as the pass.

    `widens` says whether keys and values are made in the room.
    """

    def __init__(
        self,
        storage: KVStorage,
        pairs: BlockPairs,
        lengths: Sequence[int],
        window: int | None,
        dtype: torch.dtype,
    ) -> None:
        self._storage = storage
        self._layout = layout = BlockLayout(pairs, storage.kv_heads, storage.places)
        self._mask = layout.mask(lengths, window)
        self._pattern: Pattern | None = None
        as_kept = storage.plain and paged.multiplies(storage.kept, storage.device)
        self._widens = (storage.kept != torch.float32, not as_kept)
        self._room = None
        if any(self._widens):
            block = storage.kv_heads * storage.places * storage.head_dim  # numbers of one
            fit = min(max(CHUNK_BYTES // (4 * block), 1), layout.longest_stack)
            self._room = torch.empty(fit * block, dtype=torch.float32, device=storage.device)

    def attend(self, layer: int, query: Tensor) -> Tensor:
        if self._pattern is None:  # only queries tell how many heads share a KV head
            self._pattern = self._layout.pattern(
                query.shape[1] // self._storage.kv_heads, self._mask
            )
        keys, values = (
            _Side(self._storage, side, layer, self._layout.wheres, self._room if widens else None)
            for side, widens in zip((KEYS, VALUES), self._widens, strict=True)
        )
        return paged.attention(query, self._pattern, keys, values)


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
