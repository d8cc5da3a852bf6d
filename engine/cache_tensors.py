"""Temporary tensors that a pass makes around the cache: to find, to write, to read back, to attend.

Torch-free formulas, one beside each form of `engine.cache` and `kernels.attention.paged`. Of a span
or a layer only its largest moment counts. Shapes: a pass runs `rows` tokens; K keys are read of a
sequence; R · kv vectors of D numbers are made where they are not read in place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engine.cache_plan import CachePlan
from engine.config import EngineConfig
from engine.kv_format import vector_bytes
from engine.model.config import ModelConfig
from engine.weight_format import NATIVE, NATIVE_HEADS

FEWEST_PLACES = 4
"""Blocks below this size are gathered vector by vector; the engine's own figure."""
CHUNK_BYTES = 4 << 20
"""Blocks not read in place are made in float32 this much at a time; the engine's own figure."""
DENSEST = 1.25
"""Blocks are read as a range where it is at most this much longer; the engine's own figure."""

_FLOAT, _INDEX = 4, 8


@dataclass(frozen=True, slots=True)
class Group:
    """`times` sequences of a pass alike: `count` rows each, after `start` cached tokens."""

    start: int
    count: int
    times: int = 1

    @property
    def end(self) -> int:
        return self.start + self.count

    @property
    def rows(self) -> int:
        return self.count * self.times


Pass = Sequence[Group]


@dataclass(frozen=True)
class CacheTensors:
    """One build's cache and attention: layout, width, and the shapes of its vectors.

    `size` are the run's bytes a number. `multiplies`: values are multiplied as they are kept, in 16
    bits; where a machine cannot, a little less is taken. `threads` of the function in C that single
    rows attend by; 0 where they do not.
    """

    paged: bool
    block_size: int
    bits: int
    size: int
    multiplies: bool
    heads: int
    kv_heads: int
    head_dim: int
    window: int | None
    threads: int = 0

    @classmethod
    def of(
        cls,
        config: EngineConfig,
        model: ModelConfig,
        size: int,
        plan: CachePlan,
        forms: Collection[str] = (),
    ) -> CacheTensors:
        native = NATIVE in forms and model.head_dim % NATIVE_HEADS == 0
        return cls(
            plan.layout == "paged",
            plan.block_size,
            config.cache.bits,
            size,
            config.run.precision == "bfloat16" and config.cache.bits in (0, 16),
            model.heads,
            model.kv_heads,
            model.head_dim,
            model.sliding_window,
            config.run.threads if native else 0,
        )

    @property
    def plain(self) -> bool:
        """Whether vectors are kept as the run makes them."""
        return self.bits == 0 or (self.bits == 16 and self.size == 2)

    # Made once a pass, read by every layer

    def held(self, parts: Pass) -> int:
        """Masks, index tensors, and the room that vectors are made in."""
        return self._masks(parts) + self._indices(parts) + self._room(parts)

    def while_masked(self, parts: Pass) -> int:
        """While the last mask is made: for every pair an int64 distance and a bool, two with a
        window."""
        last = self._masked(parts[-1])
        before = sum(part.times * self._masked(part) for part in parts) - last
        making = last * (_INDEX + (1 if self.window is None else 2))
        places = self._keys(parts[-1]) * _INDEX
        slots = _rows(parts) * self.kv_heads * _INDEX
        return self._room(parts) + slots + before * self.size + making + places

    def _masks(self, parts: Pass) -> int:
        return sum(part.times * self._masked(part) for part in parts) * self.size

    def _masked(self, part: Group) -> int:
        """(row, key) pairs of one that needs a mask: it continues, or looks past a window."""
        keys = self._keys(part)
        past = self.window is not None and keys > self.window
        return part.count * keys if part.count > 1 and (part.start or past) else 0

    def _indices(self, parts: Pass) -> int:
        """The slot mapping, and what the paged forms need to find their vectors."""
        numbers = _rows(parts) * self.kv_heads
        many, single = _split(parts)
        if self.paged:
            numbers += self._all_keys(many) * self.kv_heads
        if self.in_place:
            return numbers * _INDEX
        if self.paged and self._by_row:
            numbers += self._all_keys(single) * self.kv_heads
        elif self.paged and single:
            return numbers * _INDEX + self._over_blocks_held(single)
        return numbers * _INDEX

    def _over_blocks_held(self, single: Pass) -> int:
        """Each item's query, each query's items and where they begin, the items themselves; a line
        for every cell and a cell for every line; and the mask of what a row does not see."""
        items, rows = self._reach(single)[0] * self.kv_heads, _rows(single)
        longest = max(map(self._blocks, single))
        lines = items * self.heads // self.kv_heads
        numbers = 3 * items + rows * self.kv_heads + lines + rows * self.heads * longest
        whole = all(part.end == longest * self.block_size for part in single)
        hidden = 0 if whole and self.window is None else rows * longest * self.block_size
        return numbers * _INDEX + hidden * _FLOAT

    def _room(self, parts: Pass) -> int:
        """Where keys and values of one sequence of one layer, or a chunk of blocks, are made."""
        token = 2 * self.kv_heads * self.head_dim
        if not self.paged:
            return 0 if self.plain else max(part.end for part in parts) * token * _FLOAT
        number = self.size if self.plain else _FLOAT
        many, single = _split(parts)
        room = max((part.end for part in many), default=0) * token * number
        if self.in_place:
            return room
        if single and self._by_row:
            room += max(map(self._keys, single)) * token * number
        elif single:
            room += self._chunk(single) * self._block_bytes
        return room

    # While a layer writes

    def writing(self, rows: int) -> int:
        """Copies of one layer's new keys and values, and what encoding them takes."""
        numbers = 2 * rows * self.kv_heads * self.head_dim
        if self.plain:
            return numbers * self.size // 2
        joined = numbers * self.size
        wide = numbers * _FLOAT if self.size < _FLOAT else 0
        # A vector's extremes and what is kept of them: one and a scale, or two and two.
        scales = 2 * rows * self.kv_heads * (_FLOAT + 2) * (2 if self.bits == 4 else 1)
        # Both flat copies beside their stack; or the float32 copy, its quotient, and the codes.
        encoding = numbers * 2 if self.bits == 16 else wide + numbers * (_FLOAT + 1) + scales
        return joined + max(joined, encoding)

    # While a layer attends

    def attending(self, parts: Pass) -> int:
        """What is read and what comes out, at the worst moment of the last span."""
        many, single = _split(parts)
        apart = self._by_row and not self.in_place
        alone = _rows(single) if apart else min(len(single), 1)
        row = self.heads * self.head_dim * self.size
        out = _rows(parts) * row
        spans = sum(part.times for part in many) + alone
        moments = [2 * out if spans > 1 else out]  # the spans' parts, and the whole
        if many:
            last = many[-1].count * row
            moments += self._reading(max(map(self._keys, many)), out, last, self.size < _FLOAT)
        if single and self.in_place:
            moments.append(self._by_function(_rows(single), out))
        elif single and self._by_row:
            moments += self._reading(max(map(self._keys, single)), out, row, False)
        elif single and self.paged:
            moments.append(self._over_blocks(single))
        return max(moments)

    def _by_function(self, rows: int, out: int) -> int:
        """Queries side by side, the result, and the function's own sums."""
        number = rows * self.heads
        copied = number * self.head_dim * self.size if rows > 1 else 0
        sums = self.head_dim + self.threads * (self.head_dim + 2)
        return copied + out + number * sums * _FLOAT

    def _reading(self, keys: int, out: int, last: int, cast: bool) -> tuple[int, int]:
        """One span's vectors unpacked in the room, and cast to the dtype that attends.

        `out` are the bytes of all spans' results, `last` those of the span that reads.
        """
        if self.plain:
            return out, out
        vectors = keys * self.kv_heads
        made = vectors * self.head_dim * self.size if cast else 0
        unpacking = 2 * vectors * self.head_dim if self.bits == 4 else 0
        if self.paged:  # gathered as they are kept, first
            unpacking += vectors * vector_bytes(self.head_dim, self.bits, self.size)
            return out - last + unpacking, out + 2 * made
        return out - last + unpacking + made, out + 2 * made

    def _over_blocks(self, single: Pass) -> int:
        """Queries gathered to blocks: I items (block, KV head) of g query heads each.

        In turn: scores beside the gathered queries and what keys take to be read; scores beside
        the same by row; both sides of softmax; weights by row and by item; those in the width
        of values, beside their products and what values take to be read.
        """
        blocks, in_place = self._reach(single)
        lines = blocks * self.heads  # I · g
        query = _rows(single) * self.heads * self.head_dim
        scores = lines * self.block_size * _FLOAT
        rows = _rows(single) * self.heads * max(map(self._blocks, single)) * self.block_size
        rows *= _FLOAT
        made = self._reading_blocks(self._chunk(single), in_place)
        copied = self._reading_blocks(blocks, in_place)
        number = 2 if self.multiplies else _FLOAT
        gathered = lines * self.head_dim * _FLOAT
        weighted = lines * (self.block_size + self.head_dim) * number
        sums = query * (number + (self.size if number > self.size else 0))
        return query * _FLOAT + max(
            scores + gathered + (made if self._kept_narrow else copied),
            scores + rows,
            2 * rows,
            scores + scores * number // _FLOAT,
            weighted + max(sums, copied if self.multiplies or not self._kept_narrow else made),
        )

    def _reading_blocks(self, chunk: int, in_place: bool) -> int:
        """Copies of blocks that are no range of the pool, and what unpacking takes."""
        vectors = chunk * self.block_size * self.kv_heads
        copied = 0 if in_place else vectors * vector_bytes(self.head_dim, self.bits, self.size)
        return copied + (2 * vectors * self.head_dim if self.bits == 4 else 0)

    # Lengths

    @property
    def in_place(self) -> bool:
        """Whether single rows read keys and values where they lie, whatever the layout."""
        return self.threads > 0 and self.plain

    @property
    def _by_row(self) -> bool:
        """Whether decode attends to each sequence by itself."""
        return self.block_size < FEWEST_PLACES if self.paged else not self.plain

    @property
    def _kept_narrow(self) -> bool:
        """Whether blocks must be made in float32 to be multiplied."""
        return self.bits != 0 or self.size < _FLOAT

    @property
    def _block_bytes(self) -> int:
        """Keys (or values) of one block of one layer in float32."""
        return self.kv_heads * self.block_size * self.head_dim * _FLOAT

    def _chunk(self, single: Pass) -> int:
        """Blocks made at a time; none where they are read in place."""
        if not self._kept_narrow:
            return 0
        return min(max(CHUNK_BYTES // self._block_bytes, 1), self._reach(single)[0])

    def _reach(self, single: Pass) -> tuple[int, bool]:
        """Blocks that a decode step multiplies, and whether as one range of the pool.

        Sequences lie one after the other; blocks behind a window are passed over where they are
        many, and multiplied with the rest where they are few.
        """
        seen = sum(part.times * self._blocks(part) for part in single)
        stretch = sum(part.times * -(-part.end // self.block_size) for part in single)
        stretch -= self._first(single[0]) // self.block_size
        return (stretch, True) if stretch <= DENSEST * seen else (seen, False)

    def _all_keys(self, parts: Pass) -> int:
        return sum(part.times * self._keys(part) for part in parts)

    def _first(self, part: Group) -> int:
        """The first position that a sequence's rows may see."""
        return 0 if self.window is None else max(0, part.start - self.window + 1)

    def _keys(self, part: Group) -> int:
        return part.end - self._first(part)

    def _blocks(self, part: Group) -> int:
        return -(-part.end // self.block_size) - self._first(part) // self.block_size


def _rows(parts: Pass) -> int:
    return sum(part.rows for part in parts)


def _split(parts: Pass) -> tuple[Pass, Pass]:
    """Those with many rows, as in prefill, and those with one, as in decode."""
    return [part for part in parts if part.count > 1], [part for part in parts if part.count == 1]
