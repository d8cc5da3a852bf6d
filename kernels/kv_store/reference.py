"""Writing keys and values into the cache, one vector at a time."""

from __future__ import annotations

from torch import Tensor


def store(pool: Tensor, rows: Tensor, vectors: Tensor) -> None:
    """pool[rows[i]] = vectors[i]. `pool` [R, D], `rows` [n] distinct, `vectors` [n, D]."""
    for index, row in enumerate(rows.tolist()):
        pool[row] = vectors[index]
