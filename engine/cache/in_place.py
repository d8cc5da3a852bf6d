"""Decode rows over keys and values where they lie, whatever the layout: one function in C."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.cache.storage import KVStorage
from kernels.attention import decode
from kernels.attention.decode import Reach, decode_attention


class InPlaceSpan:
    """One row of each of some sequences; `reach` says which groups of the storage hold a sequence's
    tokens, and which of these its row sees."""

    def __init__(self, storage: KVStorage, rows: int, reach: Reach) -> None:
        self.rows = rows
        self._storage = storage
        self._reach = reach

    def attend(self, layer: int, query: Tensor) -> Tensor:
        return decode_attention(query, *self._storage.sides(layer), self._reach)


def reads_in_place(storage: KVStorage, dtype: torch.dtype) -> bool:
    """Whether rows of `dtype` can attend so."""
    here = storage.device == "cpu" and storage.plain and storage.kept == dtype
    return here and decode.takes(storage.head_dim, dtype)
