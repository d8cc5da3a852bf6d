"""Where the vectors of every layer lie, in the width they are kept in: rows in, vectors out.

A *group* is what one owner gets: a slot of the contiguous layout, a block of the paged one. A
*place* is a token's position in its group. The storage knows neither sequences nor lengths.

    row of (group, head, place) = (group · kv_heads + head) · places + place
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from engine.cache.formats import make_format
from engine.kv_format import vector_bytes
from kernels.kv_store.scatter import store, store_both

Side = Literal[0, 1]
KEYS: Side = 0
VALUES: Side = 1


class KVStorage:
    """Keys and values [layers, groups, kv_heads, places, D] in one of four widths.

    `bits` as `cache.bits`: 0 keeps `dtype`, the run's own, 16 keeps 16 bits, 8 and 4 integers with
    a scale a vector. Everything is allocated, and zero, from the start.

    Raises:
        ValueError: a dimension below 1, a width there is no format for, an odd head in 4 bits.
    """

    def __init__(
        self,
        layers: int,
        groups: int,
        kv_heads: int,
        places: int,
        head_dim: int,
        bits: int,
        dtype: torch.dtype,
        device: str = "cpu",
    ) -> None:
        sizes = {"layers": layers, "groups": groups, "kv_heads": kv_heads}
        sizes |= {"places": places, "head_dim": head_dim}
        for name, value in sizes.items():
            if value < 1:
                raise ValueError(f"a KV store with {name}={value} holds nothing; at least 1")
        self.layers = layers
        self.groups = groups
        self.kv_heads = kv_heads
        self.places = places
        self.head_dim = head_dim
        self.bits = bits
        self.dtype = dtype
        self.device = device
        self.token_bytes = 2 * layers * kv_heads * vector_bytes(head_dim, bits, dtype.itemsize)
        self._format = make_format(head_dim, bits, dtype)
        # Zeros, not garbage: a masked score is exp(-inf) = 0, and 0 · NaN would still be NaN.
        self._planes = tuple(
            torch.zeros((layers, 2, groups, kv_heads, places, width), dtype=kind, device=device)
            for width, kind in self._format.planes
        )
        # Views of it, made once: keys and values of each layer.
        self._sides = tuple((one[KEYS], one[VALUES]) for one in self._planes[0].unbind(0))
        # The same memory as rows: [2, R, width] for each layer and plane, made once.
        self._pools = tuple(
            tuple(plane[layer].view(2, -1, plane.shape[-1]) for plane in self._planes)
            for layer in range(layers)
        )

    def sides(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer of a `plain` storage where they lie: [groups, kv_heads,
        places, D]."""
        return self._sides[layer]

    @property
    def kept(self) -> torch.dtype:
        """The dtype of what a vector is mostly made of: its numbers, or their codes."""
        return self._planes[0].dtype

    @property
    def plain(self) -> bool:
        """Whether vectors are kept as the run computes them, so that they are read in place."""
        return self.kept == self.dtype

    @property
    def nbytes(self) -> int:
        """Bytes allocated, used or not."""
        return sum(plane.nbytes for plane in self._planes)

    def write(self, layer: int, rows: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store `keys` and `values` [T, kv_heads, D] at distinct `rows` [T · kv_heads], in place.

        Temporary bytes in 8 and 4 bits: at most 3 float32 copies of both, 3 · 2 · T · kv · D · 4.
        """
        pools = self._pools[layer]
        if self.plain:
            store(pools[0][KEYS], rows, keys.flatten(0, 1))
            store(pools[0][VALUES], rows, values.flatten(0, 1))
            return
        both = torch.stack((keys.flatten(0, 1), values.flatten(0, 1)))
        for pool, part in zip(pools, self._format.encode(both), strict=True):
            store_both(pool, rows, part)

    def view(self, layer: int, groups: slice | Tensor, places: slice) -> tuple[Tensor, Tensor]:
        """Keys and values [G, kv_heads, P, D] in `dtype` of some groups: a range, or int64 [G].

        A view where vectors are `plain` and the groups a range, a copy elsewhere.
        """
        keys, values = (self._vectors(side, layer, groups, places) for side in (KEYS, VALUES))
        return keys, values

    def layer_views(self, groups: slice, places: slice) -> tuple[tuple[Tensor, Tensor], ...]:
        """`view` of every layer at once, for a `plain` storage: never a copy."""
        if not self.plain:
            raise ValueError(f"vectors of {self.bits} bits are not kept as {self.dtype}")
        whole = self._planes[0][:, :, groups, :, places]
        return tuple(zip(*(whole[:, side].unbind(0) for side in (KEYS, VALUES)), strict=True))

    def read(
        self, side: Side, layer: int, groups: slice | Tensor, places: slice, out: Tensor
    ) -> None:
        """Keys or values of some groups into `out` float32 [G, kv_heads, P, D]."""
        parts = tuple(plane[layer, side][groups, :, places] for plane in self._planes)
        self._format.decode(parts, out)

    def gather(self, side: Side, layer: int, rows: Tensor, out: Tensor) -> None:
        """Keys or values at flat `rows` [n] into `out` [n, D], float32 (or `dtype` where `plain`).

        Temporary bytes unless `plain`: the n kept vectors once more.
        """
        pools = self._pools[layer]
        if out.dtype == self.kept:
            torch.index_select(pools[0][side], 0, rows, out=out)
            return
        self._format.decode(tuple(pool[side].index_select(0, rows) for pool in pools), out)

    def blocks(self, side: Side, layer: int, groups: slice | Tensor) -> Tensor:
        """Keys or values of whole groups as they are kept: [G, kv_heads, places, D].

        In place for a range, a copy for a list [G]. Of a format with scales, the bare codes.
        """
        return self._planes[0][layer, side][groups]

    def copy(self, source: int, target: int, places: int) -> None:
        """Copy the first `places` tokens of group `source` to group `target`, in every layer."""
        for plane in self._planes:
            plane[:, :, target, :, :places] = plane[:, :, source, :, :places]

    def wipe(self, groups: Sequence[int]) -> None:
        """Zero some groups in every layer: what a failed pass wrote may be NaN, which no mask hides
        from a weighted sum (0 · NaN is NaN)."""
        for plane in self._planes:
            for group in groups:
                plane[:, :, group].zero_()

    def _vectors(self, side: Side, layer: int, groups: slice | Tensor, places: slice) -> Tensor:
        if self.plain:
            return self._planes[0][layer, side][groups, :, places]
        count = len(range(self.groups)[groups]) if isinstance(groups, slice) else len(groups)
        width = len(range(self.places)[places])
        shape = (count, self.kv_heads, width, self.head_dim)
        out = torch.empty(shape, dtype=torch.float32, device=self.device)
        self.read(side, layer, groups, places, out)
        return out.to(self.dtype)
