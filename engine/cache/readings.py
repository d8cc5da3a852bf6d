"""Three ways to hand keys and values to attention: in place, decoded, brought together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.cache.storage import KEYS, VALUES, KVStorage, Side


@dataclass(frozen=True)
class InPlace:
    """A view a layer, never a copy."""

    layers: tuple[tuple[Tensor, Tensor], ...]

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        return self.layers[index]


def workspace(storage: KVStorage, keys: int) -> Tensor:
    """Room for one sequence's keys and values of one layer, float32: [2, kv_heads · keys · D].

    All layers of a pass, and all its sequences, one after the other, are read through it: it is
    allocated once a pass and lives as long.
    """
    shape = (2, storage.kv_heads * keys * storage.head_dim)
    return torch.empty(shape, dtype=torch.float32, device=storage.device)


@dataclass(frozen=True)
class Decoded:
    """`keys` positions of one group, made anew for each layer in `room` (see `workspace`).

    Given in float32, in which they are made, or in `dtype`: then 2 · kv · keys · D numbers of
    `dtype` are a temporary of each layer. Attention over 8 rows of 512 tokens then takes 1.6 times
    what it takes in place at 8 bits, 2.5 times at 4; over mixed lengths, of which no padding is
    made, 0.8 and 1.2 times (one core, float32, 3 KV heads of 64).
    """

    storage: KVStorage
    group: slice
    places: slice
    room: Tensor
    dtype: torch.dtype

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        return self._made(KEYS, index), self._made(VALUES, index)

    def _made(self, side: Side, index: int) -> Tensor:
        """[1, kv, keys, D]."""
        storage, keys = self.storage, self.places.stop - self.places.start
        shape = (1, storage.kv_heads, keys, storage.head_dim)
        out = self.room[side, : storage.kv_heads * keys * storage.head_dim].view(shape)
        storage.read(side, index, self.group, self.places, out)
        return out.to(self.dtype)


@dataclass(frozen=True)
class Gathered:
    """Vectors from anywhere brought together for each layer: `rows` [kv_heads · keys] int64.

    `room` [2, at least kv · keys · D] is float32, or the run's dtype where vectors are kept in it.
    """

    storage: KVStorage
    rows: Tensor
    room: Tensor

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        return self._made(KEYS, index), self._made(VALUES, index)

    def _made(self, side: Side, index: int) -> Tensor:
        """[1, kv, keys, D]."""
        storage, count = self.storage, self.rows.shape[0]
        out = self.room[side, : count * storage.head_dim].view(count, storage.head_dim)
        storage.gather(side, index, self.rows, out)
        return out.view(1, storage.kv_heads, -1, storage.head_dim)
