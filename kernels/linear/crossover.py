"""Few rows by the low-bit kernel, many by the dense product.

A low-bit kernel saves bytes, which is what a product of few rows waits for; it pays with decoding,
once for every few rows. A product of many rows waits for arithmetic: there the weights are better
made dense once, used and forgotten.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from kernels.linear.dispatch import dense_product


class LowBit(Protocol):
    """A quantised weight [N, K]: a `Linear` that can also be read back."""

    @property
    def form(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def bias(self) -> Tensor | None: ...

    def __call__(self, x: Tensor) -> Tensor: ...

    def dense(self) -> Tensor: ...

    def rows(self, ids: Tensor) -> Tensor: ...


class CrossoverLinear:
    """`low` up to `rows` rows, its dense form beyond; the dense form lives for one call only.

    `rows` 0 never makes it dense.

    Raises:
        ValueError: fewer than 0 rows.
    """

    def __init__(self, low: LowBit, rows: int) -> None:
        if rows < 0:
            raise ValueError(f"a crossover lies at 1 row or more, or 0 for never, not at {rows}")
        self.low = low
        self.crossover = rows

    @property
    def form(self) -> str:
        if not self.crossover:
            return self.low.form
        plural = "" if self.crossover == 1 else "s"
        return f"{self.low.form}, dense above {self.crossover} row{plural}"

    @property
    def nbytes(self) -> int:
        """What is held: the low-bit form alone."""
        return self.low.nbytes

    @property
    def bias(self) -> Tensor | None:
        return self.low.bias

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N]."""
        if self.crossover and x.shape[0] > self.crossover:
            return dense_product(x, self.low.dense(), self.low.bias)
        return self.low(x)

    def dense(self) -> Tensor:
        """[N, K] in the run's dtype."""
        return self.low.dense()

    def rows(self, ids: Tensor) -> Tensor:
        """Rows `ids` [T] of the dequantised matrix: [T, K]."""
        return self.low.rows(ids)
