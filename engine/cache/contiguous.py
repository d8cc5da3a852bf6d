"""One slot a sequence, as long as the longest can become: simple, fast to read, mostly empty."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from engine.cache.in_place import InPlaceSpan, reads_in_place
from engine.cache.kv_cache import Addresses, KVCache, Span
from engine.cache.readings import Decoded, InPlace, workspace
from engine.cache.spans import DenseSpan, extent
from engine.cache.storage import KVStorage
from engine.page_map import CELL_SIGNS, PageMap
from kernels.attention.decode import Reach

MAP_CELL = 16
"""Tokens of one cell of the page map: the paged layout's usual block, so that both look alike."""


class ContiguousCache(KVCache):
    """Every sequence owns one slot: `capacity` tokens side by side, reserved when it enters.

    A slot is a group of `storage`, its `places` the capacity. A range of slots is a strided view
    [B, kv_heads, S, D] that attention reads in place; at 8 and 4 bits each sequence is decoded as
    it is read. What is reserved and not used is wasted: the paged layout exists for that.
    """

    def __init__(self, storage: KVStorage) -> None:
        self.capacity = storage.places
        self.slots = storage.groups
        self._storage = storage
        self._slot_rows = storage.kv_heads * storage.places
        self._head_offsets = torch.arange(storage.kv_heads, device=storage.device) * storage.places
        self._free = list(range(self.slots - 1, -1, -1))
        self._slot: dict[int, int] = {}
        self._length: dict[int, int] = {}

    def ever_fits(self, tokens: int) -> bool:
        return tokens <= self.capacity

    def can_admit(
        self, prompt: Sequence[int], most: int, whole: bool = False, spare: int = 0
    ) -> bool:
        return bool(self._free) and most <= self.capacity

    def admit(self, sequence: int, prompt: Sequence[int], most: int, whole: bool = False) -> int:
        if sequence in self._slot:
            raise ValueError(f"sequence {sequence} is in the cache already")
        if most > self.capacity:
            raise ValueError(
                f"sequence {sequence} needs {most} tokens; a slot holds {self.capacity}"
            )
        if not self._free:
            raise ValueError(f"all {self.slots} slots are taken; free one first")
        # The lowest free slot keeps the sequences in use adjacent, hence readable as one view.
        lowest = min(self._free)
        self._free.remove(lowest)
        self._slot[sequence] = lowest
        self._length[sequence] = 0
        return 0

    def shortage(self, sequences: Sequence[int], counts: Sequence[int]) -> int:
        return 0  # a slot is as long as its sequence can become

    def free(self, sequence: int, spoiled: bool = False) -> None:
        slot = self._slot.pop(self._known(sequence))
        del self._length[sequence]
        self._free.append(slot)
        if spoiled:
            self._storage.wipe([slot])

    def clear(self) -> None:
        for sequence in list(self._slot):
            self.free(sequence)

    def length(self, sequence: int) -> int:
        return self._length[self._known(sequence)]

    def slot(self, sequence: int) -> int:
        return self._slot[self._known(sequence)]

    def append(self, sequences: Sequence[int], runs: Sequence[Sequence[int]]) -> Addresses:
        counts = [len(run) for run in runs]
        for sequence, count in zip(sequences, counts, strict=True):
            end = self.length(sequence) + count
            if end > self.capacity:
                raise ValueError(
                    f"sequence {sequence} would grow to {end} tokens; a slot holds {self.capacity}"
                )
        tokens: list[int] = []
        for sequence, count in zip(sequences, counts, strict=True):
            start = self._slot[sequence] * self._slot_rows + self._length[sequence]
            tokens.extend(range(start, start + count))
            self._length[sequence] += count
        first_head = torch.tensor(tokens, dtype=torch.int64, device=self._head_offsets.device)
        return Addresses((first_head[:, None] + self._head_offsets).flatten())

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
        """Decode rows go together: in C each reads its own slot; in torch those in adjacent slots
        do, short beside long, where the padding is masked and costs less than a call a sequence.
        Prefill goes by sequence, where the kernel skips the future half by itself; so does
        everything that is decoded first, to decode no padding."""
        slots = [self.slot(sequence) for sequence in sequences]
        single = by_row or all(count == 1 for count in counts)
        if single and reads_in_place(self._storage, dtype):
            rows = [
                (slot, start + 1 + row)
                for slot, start, count in zip(slots, starts, counts, strict=True)
                for row in range(count)
            ]
            firsts = [0 if window is None else max(0, end - window) for _, end in rows]
            reach = Reach(((slot,) for slot, _ in rows), firsts, (end for _, end in rows))
            return (InPlaceSpan(self._storage, len(rows), reach),)
        in_place = self._storage.plain
        joined = [
            in_place and slots[i] == slots[i - 1] + 1 and counts[i] == counts[i - 1] == 1
            for i in range(1, len(slots))
        ]
        cuts = [0, *(i for i, together in enumerate(joined, 1) if not together), len(slots)]
        pieces = [(slots[low], list(starts[low:high]), counts[low]) for low, high in pairwise(cuts)]
        if in_place:
            return tuple(self._viewed(*piece, window, dtype) for piece in pieces)
        longest = max(start + count for start, count in zip(starts, counts, strict=True))
        room = workspace(self._storage, min(longest, self.capacity))
        return tuple(self._decoded(*piece, window, dtype, room) for piece in pieces)

    def _viewed(
        self, slot: int, starts: list[int], count: int, window: int | None, dtype: torch.dtype
    ) -> Span:
        found = extent(starts, count, window, dtype, self._storage.device)
        groups, places = slice(slot, slot + len(starts)), found.places
        reading = InPlace(self._storage.layer_views(groups, places))
        return DenseSpan(len(starts), count, reading, found.mask, found.causal)

    def _decoded(
        self,
        slot: int,
        starts: list[int],
        count: int,
        window: int | None,
        dtype: torch.dtype,
        room: Tensor,
    ) -> Span:
        """One row attends in float32, in which its keys are made; many in `dtype`, whose products
        are faster."""
        kind = torch.float32 if count == 1 else dtype
        found = extent(starts, count, window, kind, self._storage.device)
        reading = Decoded(self._storage, slice(slot, slot + 1), found.places, room, kind)
        return DenseSpan(1, count, reading, found.mask, found.causal)

    def rewind(self, sequence: int, length: int, spoiled: bool = False) -> None:
        if not 0 <= length <= self.length(sequence):
            raise ValueError(
                f"sequence {sequence} holds {self.length(sequence)} tokens and cannot be rewound "
                f"to {length}; 0 to {self.length(sequence)} can"
            )
        self._length[sequence] = length

    @property
    def nbytes(self) -> int:
        return self._storage.nbytes

    @property
    def token_bytes(self) -> int:
        return self._storage.token_bytes

    @property
    def held_tokens(self) -> int:
        return sum(self._length.values())

    @property
    def reserved_tokens(self) -> int:
        return len(self._slot) * self.capacity

    def page_map(self) -> PageMap:
        """Each slot in cells of MAP_CELL tokens."""
        lengths = {slot: self._length[sequence] for sequence, slot in self._slot.items()}
        cells = "".join(_slot_cells(lengths.get(slot), self.capacity) for slot in range(self.slots))
        return PageMap(
            layout="contiguous",
            block_size=MAP_CELL,
            cells=cells,
            held_tokens=self.held_tokens,
            reserved_tokens=self.reserved_tokens,
        )

    def check_integrity(self) -> None:
        taken = sorted(self._slot.values())
        assert sorted(taken + self._free) == list(range(self.slots)), "free + taken = all slots"
        assert self._slot.keys() == self._length.keys()
        assert all(0 <= length <= self.capacity for length in self._length.values())

    def _known(self, sequence: int) -> int:
        if sequence not in self._slot:
            raise ValueError(f"sequence {sequence} is not in the cache")
        return sequence


def _slot_cells(length: int | None, capacity: int) -> str:
    """A slot of `capacity` tokens, `length` of them held; None where it is nobody's."""
    cells = -(-capacity // MAP_CELL)
    if length is None:
        return CELL_SIGNS["free"] * cells
    full, rest = divmod(length, MAP_CELL)
    signs = CELL_SIGNS["full"] * full + (CELL_SIGNS["tail"] if rest else "")
    return signs + CELL_SIGNS["reserved"] * (cells - len(signs))
