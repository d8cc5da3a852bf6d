"""Where keys and values of past tokens live, behind an interface that other layouts can fill.

The engine asks four things of a cache: room for a sequence, addresses for its next tokens (the slot
mapping), views to attend over, and to forget (a finished sequence, or a rejected ending).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.kv_store.scatter import store


@dataclass(frozen=True)
class Addresses:
    """The slot mapping of a pass: a pool row for every vector, `rows` [T · kv_heads] int64.

    Vector (t, h) of a layer's keys [T, kv_heads, D] goes to row `rows[t · kv_heads + h]`.
    """

    rows: Tensor


@dataclass(frozen=True)
class Reading:
    """Keys and values of some sequences, a view a layer: [B, kv_heads, S, D], never a copy.

    Row b holds sequence b's tokens at positions first .. first + S - 1. Past the end of a shorter
    sequence stands finite padding, to be masked.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    first: int


class KVCache(ABC):
    """Keys and values of many sequences over all layers."""

    capacity: int
    """Most tokens one sequence can hold."""

    @abstractmethod
    def can_allocate(self, tokens: int) -> bool:
        """Whether a sequence that will grow to `tokens` can be taken in now."""

    @abstractmethod
    def allocate(self, sequence: int, tokens: int) -> None:
        """Take in `sequence`, empty, with room for `tokens`.

        Raises:
            ValueError: it is there already, there is no room now, or it could never fit.
        """

    @abstractmethod
    def free(self, sequence: int) -> None:
        """Forget `sequence` and give its room back."""

    @abstractmethod
    def length(self, sequence: int) -> int:
        """Tokens of `sequence` in the cache."""

    @abstractmethod
    def slot(self, sequence: int) -> int:
        """A key that orders sequences so that neighbours can be read as one view."""

    @abstractmethod
    def append(self, sequences: Sequence[int], counts: Sequence[int]) -> Addresses:
        """Grow each sequence by its count and say where the new vectors go.

        Raises:
            ValueError: a sequence would outgrow its room; nothing has grown then.
        """

    @abstractmethod
    def write(self, layer: int, addresses: Addresses, keys: Tensor, values: Tensor) -> None:
        """Store one layer's `keys` and `values` [T, kv_heads, D] at `addresses`, in place."""

    @abstractmethod
    def read(self, sequences: Sequence[int], first: int, last: int) -> Reading:
        """Views of positions first .. last - 1 of `sequences`, which stand in adjacent slots."""

    @abstractmethod
    def rewind(self, sequence: int, length: int) -> None:
        """Keep only the first `length` tokens of `sequence`; the next append goes after them.

        Speculation drafts past the end and takes back what the target rejects.

        Raises:
            ValueError: `length` is negative or past the present end.
        """

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes reserved, used or not."""

    @abstractmethod
    def check_integrity(self) -> None:
        """Raises AssertionError where the books do not add up."""


class ContiguousCache(KVCache):
    """Every sequence owns one slot: `capacity` tokens side by side, reserved when it enters.

    Keys (and values) are one tensor [layers, slots, kv_heads, capacity, D]. A range of slots is
    therefore a strided view [B, kv_heads, S, D] that attention reads in place. What is reserved
    and not used is wasted: the paged layout exists for that.
    """

    def __init__(
        self,
        layers: int,
        slots: int,
        kv_heads: int,
        capacity: int,
        head_dim: int,
        dtype: torch.dtype,
        device: str = "cpu",
    ) -> None:
        for name, value in (("slots", slots), ("capacity", capacity)):
            if value < 1:
                raise ValueError(f"a KV cache with {name}={value} holds nothing; at least 1")
        self.capacity = capacity
        self.slots = slots
        shape = (layers, slots, kv_heads, capacity, head_dim)
        # Zeros, not garbage: a masked score is exp(-inf) = 0, and 0 · NaN would still be NaN.
        self._keys = torch.zeros(shape, dtype=dtype, device=device)
        self._values = torch.zeros(shape, dtype=dtype, device=device)
        self._key_pools = self._keys.view(layers, -1, head_dim).unbind(0)
        self._value_pools = self._values.view(layers, -1, head_dim).unbind(0)
        self._head_offsets = torch.arange(kv_heads, device=device) * capacity
        self._slot_rows = kv_heads * capacity
        self._free = list(range(slots - 1, -1, -1))
        self._slot: dict[int, int] = {}
        self._length: dict[int, int] = {}

    def can_allocate(self, tokens: int) -> bool:
        return bool(self._free) and tokens <= self.capacity

    def allocate(self, sequence: int, tokens: int) -> None:
        if sequence in self._slot:
            raise ValueError(f"sequence {sequence} is in the cache already")
        if tokens > self.capacity:
            raise ValueError(
                f"sequence {sequence} needs {tokens} tokens; a slot holds {self.capacity}"
            )
        if not self._free:
            raise ValueError(f"all {self.slots} slots are taken; free one first")
        # The lowest free slot keeps the sequences in use adjacent, hence readable as one view.
        lowest = min(self._free)
        self._free.remove(lowest)
        self._slot[sequence] = lowest
        self._length[sequence] = 0

    def free(self, sequence: int) -> None:
        self._free.append(self._slot.pop(self._known(sequence)))
        del self._length[sequence]

    def length(self, sequence: int) -> int:
        return self._length[self._known(sequence)]

    def slot(self, sequence: int) -> int:
        return self._slot[self._known(sequence)]

    def append(self, sequences: Sequence[int], counts: Sequence[int]) -> Addresses:
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
        store(self._key_pools[layer], addresses.rows, keys.flatten(0, 1))
        store(self._value_pools[layer], addresses.rows, values.flatten(0, 1))

    def read(self, sequences: Sequence[int], first: int, last: int) -> Reading:
        low = self.slot(sequences[0])
        assert [self.slot(sequence) for sequence in sequences] == list(
            range(low, low + len(sequences))
        ), "a reading covers adjacent slots"
        rows = slice(low, low + len(sequences))
        return Reading(
            keys=self._keys[:, rows, :, first:last].unbind(0),
            values=self._values[:, rows, :, first:last].unbind(0),
            first=first,
        )

    def rewind(self, sequence: int, length: int) -> None:
        if not 0 <= length <= self.length(sequence):
            raise ValueError(
                f"sequence {sequence} holds {self.length(sequence)} tokens and cannot be rewound "
                f"to {length}; 0 to {self.length(sequence)} can"
            )
        self._length[sequence] = length

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._values.nbytes

    def check_integrity(self) -> None:
        taken = sorted(self._slot.values())
        assert sorted(taken + self._free) == list(range(self.slots)), "free + taken = all slots"
        assert self._slot.keys() == self._length.keys()
        assert all(0 <= length <= self.capacity for length in self._length.values())

    def _known(self, sequence: int) -> int:
        if sequence not in self._slot:
            raise ValueError(f"sequence {sequence} is not in the cache")
        return sequence
