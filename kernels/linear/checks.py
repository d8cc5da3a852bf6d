"""What every low-bit form refuses."""

from __future__ import annotations

from torch import Tensor


def refuse_no_rows(x: Tensor) -> None:
    """Raises ValueError for `x` [0, K]: a product of nothing is a mistake of the caller's."""
    if x.shape[0] == 0:
        raise ValueError("a product needs at least one row")
