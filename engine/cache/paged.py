"""Blocks of a few tokens, given out as sequences grow: little is wasted, beginnings are shared.

The layout of PagedAttention (Kwon et al., 2023). The books are in `block_tables`, the vectors in a
storage of one group a block; here they meet: a token's place in its sequence becomes a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache.block_contents import BlockContents
from engine.cache.block_pairs import Pairing, on_device
from engine.cache.block_tables import BlockTable, BlockTables
from engine.cache.in_place import InPlaceSpan, reads_in_place
from engine.cache.kv_cache import Addresses, KVCache, Span
from engine.cache.paged_span import PagedSpan
from engine.cache.prefix_index import Hash, PrefixIndex, sha256
from engine.cache.readings import Gathered
from engine.cache.spans import DenseSpan, Reading, extent
from engine.cache.storage import KVStorage
from engine.page_map import CELL_SIGNS, PageMap
from kernels.attention.decode import Reach


@dataclass(frozen=True)
class _InDtype:
    """A reading in another dtype: that in which many rows are attended fastest."""

    reading: Reading
    dtype: torch.dtype

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        keys, values = self.reading.layer(index)
        return keys.to(self.dtype), values.to(self.dtype)


class PagedCache(KVCache):
    """Sequences own blocks of `storage.places` tokens; full ones are shared where prompts agree.

    `capacity` is the most tokens of one sequence. `digest` names a block's beginning when
    `prefix_sharing` is on.

    Raises:
        ValueError: a capacity below 1.
    """

    def __init__(
        self,
        storage: KVStorage,
        capacity: int,
        prefix_sharing: bool = False,
        digest: Hash = sha256,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"a KV cache with capacity={capacity} holds nothing; at least 1")
        self.capacity = capacity
        self.block_size = storage.places
        self._storage = storage
        self._contents = BlockContents(
            storage.groups,
            self.block_size,
            PrefixIndex(self.block_size, digest) if prefix_sharing else None,
            storage.copy,
        )
        self._pool = self._contents.pool
        self._tables = BlockTables(self._contents)
        size = self.block_size
        self._block_rows = storage.kv_heads * size
        self._head_offsets = torch.arange(storage.kv_heads, device=storage.device) * size
        self._places = torch.arange(size, device=storage.device)
        self._pairing = Pairing(size, self._tables.blocks_for(capacity), storage.device)

    # Room

    def ever_fits(self, tokens: int) -> bool:
        return tokens <= self.capacity and self._tables.blocks_for(tokens) <= self._pool.blocks

    def can_admit(
        self, prompt: Sequence[int], most: int, whole: bool = False, spare: int = 0
    ) -> bool:
        return (
            0 < len(prompt) <= most
            and self.ever_fits(most)
            and self._tables.needed(prompt, most, whole) + spare <= self._tables.room(prompt)
        )

    def matched(self, prompt: Sequence[int]) -> int:
        return self._tables.found(prompt)

    def admit(self, sequence: int, prompt: Sequence[int], most: int, whole: bool = False) -> int:
        if sequence in self._tables:
            raise ValueError(f"sequence {sequence} is in the cache already")
        if not 0 < len(prompt) <= most:
            raise ValueError(
                f"sequence {sequence} has a prompt of {len(prompt)} tokens and may hold {most}; "
                f"1 to {most} can be held"
            )
        if not self.ever_fits(most):
            holds = min(self.capacity, self._pool.blocks * self.block_size)
            raise ValueError(
                f"sequence {sequence} needs {most} tokens; this cache holds {holds} of one sequence"
            )
        return self._tables.admit(sequence, prompt, most, whole)

    def shortage(self, sequences: Sequence[int], counts: Sequence[int]) -> int:
        return self._tables.shortage(sequences, counts)

    def free(self, sequence: int, spoiled: bool = False) -> None:
        unheld = self._tables.free(sequence, spoiled)
        if unheld:
            self._storage.wipe(unheld)

    def clear(self) -> None:
        self._tables.clear()

    # Growing and shrinking

    def length(self, sequence: int) -> int:
        return self._tables[sequence].length

    def slot(self, sequence: int) -> int:
        """The order of admission: decode rows then keep their order from step to step."""
        return self._tables[sequence].serial

    def append(self, sequences: Sequence[int], runs: Sequence[Sequence[int]]) -> Addresses:
        """Tokens [T] at first-head rows, then all heads: [T · kv_heads]."""
        counts = [len(run) for run in runs]
        self._check_room(sequences, counts)
        tokens: list[int] = []
        for sequence, run, count in zip(sequences, runs, counts, strict=True):
            start = self._tables[sequence].length
            self._tables.grow(sequence, run)
            self._add_rows(tokens, self._tables[sequence], start, start + count)
        first_head = torch.tensor(tokens, dtype=torch.int64, device=self._head_offsets.device)
        return Addresses((first_head[:, None] + self._head_offsets).flatten())

    def rewind(self, sequence: int, length: int, spoiled: bool = False) -> None:
        present = self.length(sequence)
        if not 0 <= length <= present:
            raise ValueError(
                f"sequence {sequence} holds {present} tokens and cannot be rewound to {length}; "
                f"0 to {present} can"
            )
        self._tables.rewind(sequence, length, spoiled)

    # Vectors

    def write(self, layer: int, addresses: Addresses, keys: Tensor, values: Tensor) -> None:
        self._storage.write(layer, addresses.rows, keys, values)

    def spans(
        self,
        sequences: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        window: int | None,
        dtype: torch.dtype,
        by_row: bool = False,
    ) -> tuple[Span, ...]:
        """Neighbours with one row each attend together, over the pool where it lies: in C block by
        block, in torch with their queries gathered to the blocks. A prefill goes
        by sequence, over its blocks brought together: many rows share the copy."""
        found: list[Span] = []
        tables = [self._tables[sequence] for sequence in sequences]
        if by_row and reads_in_place(self._storage, dtype):
            rows = [
                (table, start + row)
                for table, start, count in zip(tables, starts, counts, strict=True)
                for row in range(count)
            ]
            one_by_one = [table for table, _ in rows], [start for _, start in rows]
            return (self._decode_span(*one_by_one, window, dtype),)
        many = [start + c for start, c in zip(starts, counts, strict=True) if c > 1]
        room = self._workspace(max(many), dtype) if many else torch.empty(0)
        low = 0
        while low < len(tables):
            high = low + 1
            if counts[low] == 1:
                while high < len(tables) and counts[high] == 1:
                    high += 1
                found.append(self._decode_span(tables[low:high], starts[low:high], window, dtype))
            elif counts[low]:
                piece = tables[low], starts[low], counts[low]
                found.append(self._prefill_span(*piece, window, dtype, room))
            low = high
        return tuple(found)

    # Account

    @property
    def nbytes(self) -> int:
        return self._storage.nbytes

    @property
    def token_bytes(self) -> int:
        return self._storage.token_bytes

    @property
    def held_tokens(self) -> int:
        return self._contents.held_tokens

    @property
    def reserved_tokens(self) -> int:
        return self._pool.held * self.block_size

    @property
    def vacant_tokens(self) -> int:
        return self._pool.available * self.block_size

    def needed_tokens(self, prompt: Sequence[int], most: int, whole: bool = False) -> int:
        return self._tables.needed(prompt, most, whole) * self.block_size

    @property
    def copies(self) -> int:
        return self._contents.copies

    def page_map(self) -> PageMap:
        """One cell a block."""
        return PageMap(
            layout="paged",
            block_size=self.block_size,
            cells="".join(self._cell(block) for block in range(self._pool.blocks)),
            held_tokens=self.held_tokens,
            reserved_tokens=self.reserved_tokens,
            copies=self._contents.copies,
            copied=tuple(self._contents.copied),
        )

    def check_integrity(self) -> None:
        self._tables.check_integrity()

    # Steps of the above

    def _check_room(self, sequences: Sequence[int], counts: Sequence[int]) -> None:
        for sequence, count in zip(sequences, counts, strict=True):
            end = self._tables[sequence].length + count
            if end > self.capacity:
                raise ValueError(
                    f"sequence {sequence} would grow to {end} tokens; this cache holds "
                    f"{self.capacity} of one sequence"
                )
        missing = self._tables.shortage(sequences, counts)
        if missing:
            raise ValueError(
                f"{missing} more blocks of {self.block_size} tokens are needed than the "
                f"{self._pool.available} that can be given; free a sequence first"
            )

    def _add_rows(self, rows: list[int], table: BlockTable, start: int, end: int) -> None:
        """Rows of the first head for positions start .. end - 1."""
        size = self.block_size
        while start < end:
            index, place = divmod(start, size)
            count = min(size - place, end - start)
            row = table.blocks[index] * self._block_rows + place
            rows.extend(range(row, row + count))
            start += count

    def _decode_span(
        self,
        tables: Sequence[BlockTable],
        starts: Sequence[int],
        window: int | None,
        dtype: torch.dtype,
    ) -> Span:
        lengths = tuple(start + 1 for start in starts)
        if reads_in_place(self._storage, dtype):
            return InPlaceSpan(self._storage, len(tables), self._reach(tables, lengths, window))
        pairs = self._pairing.of(tables, lengths, window, unshared=self._pool.shared == 0)
        return PagedSpan(self._storage, pairs, lengths, window, dtype)

    def _reach(
        self, tables: Sequence[BlockTable], lengths: Sequence[int], window: int | None
    ) -> Reach:
        """The blocks of each row from the first that it sees any of."""
        size, stop = self.block_size, self._tables.blocks_for
        firsts = [0 if window is None else max(0, length - window) for length in lengths]
        lows = [first // size for first in firsts]
        return Reach(
            (t.blocks[low : stop(n)] for t, low, n in zip(tables, lows, lengths, strict=True)),
            (first % size for first in firsts),
            (length - low * size for length, low in zip(lengths, lows, strict=True)),
        )

    def _prefill_span(
        self,
        table: BlockTable,
        start: int,
        count: int,
        window: int | None,
        dtype: torch.dtype,
        room: Tensor,
    ) -> Span:
        """Bytes that live as long as the pass, besides `room` and the mask: 8 · kv · keys of rows.

        Bytes of one layer unless vectors are plain: the gathered ones as they are kept, and 2 · kv
        · keys · D numbers of `dtype` where that is not float32.
        """
        found = extent([start], count, window, dtype, self._storage.device)
        low = found.first // self.block_size
        blocks = on_device(
            table.blocks[low : self._tables.blocks_for(start + count)], self._storage.device
        )
        rows = (blocks[:, None] * self._block_rows + self._places).flatten()  # of the first head
        skip = found.first - low * self.block_size
        rows = self._head_offsets[:, None] + rows[skip : skip + found.keys]  # [kv, keys]
        reading = _InDtype(Gathered(self._storage, rows.flatten(), room), dtype)
        return DenseSpan(1, count, reading, found.mask, found.causal)

    def _workspace(self, keys: int, dtype: torch.dtype) -> Tensor:
        """Keys and values of one layer for `keys` tokens, [2, kv_heads · keys · D]: all the prefill
        pieces and layers of a pass are gathered into it, one after the other."""
        kind = dtype if self._storage.plain else torch.float32
        shape = (2, self._storage.kv_heads * keys * self._storage.head_dim)
        return torch.empty(shape, dtype=kind, device=self._storage.device)

    def _cell(self, block: int) -> str:
        references, fill = self._pool.references(block), self._contents.fill(block)
        if references == 0:
            return CELL_SIGNS["cached" if self._pool.is_cached(block) else "free"]
        if fill == 0:
            return CELL_SIGNS["reserved"]
        if references > 1:
            return CELL_SIGNS["shared"]
        return CELL_SIGNS["full" if fill == self.block_size else "tail"]
