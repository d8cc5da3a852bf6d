"""A model's tensors laid out for the kernels that will multiply by them, as each is asked for.

What a recipe quantised is taken from its grid, in the form that `engine.weight_format` chooses, and
the rest from the loader's tensors, cast once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

import torch
from torch import Tensor

from engine.quant.grid import GridWeight
from engine.weight_format import Scheme, choose_form, crosses
from kernels.linear.crossover import CrossoverLinear, LowBit
from kernels.linear.dispatch import Linear, resolve
from kernels.linear.low_bit_forms import make_low_bit
from kernels.norm.rms_norm import RMSNorm


class Table(Protocol):
    """A matrix [V, H] that rows are looked up in."""

    @property
    def nbytes(self) -> int: ...

    def rows(self, ids: Tensor) -> Tensor:
        """Rows `ids` [T] in the run's precision: [T, H]."""
        ...


@dataclass(frozen=True)
class DenseTable:
    """The matrix as it is."""

    weight: Tensor

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes

    def rows(self, ids: Tensor) -> Tensor:
        """[T] -> [T, H]."""
        return self.weight[ids]


@dataclass(frozen=True)
class Weights:
    """The tensors of one model for one precision; `grids` by the engine's names of matrices.

    Raises, when asked:
        ValueError: a tensor that is missing, or a grid of another shape than the matrix.
    """

    tensors: Mapping[str, Tensor]
    dtype: torch.dtype
    device: str
    grids: Mapping[str, GridWeight] = field(default_factory=dict)
    forms: Collection[str] = ()

    def linear(self, name: str, parts: tuple[str, ...], bias: Tensor | None = None) -> Linear:
        """The matrix `name`, whose tensors `parts` are stacked along their output rows."""
        if name not in self.grids:
            return resolve(self._stacked(parts), bias)
        columns = self._find(parts[0]).shape[1]
        rows = sum(self._find(part).shape[0] for part in parts)
        return self._low_bit(name, (rows, columns), bias)

    def embedding(self) -> tuple[Table, Linear]:
        """What ids are looked up in, and a linear by the same matrix: a tied head.

        A quantised one is both. Otherwise the product may want a second copy, laid out its way.
        """
        if "embedding" in self.grids:
            rows, columns = self._find("embedding").shape
            matrix = self._low_bit("embedding", (rows, columns), None)
            return matrix, matrix
        weight = self._stacked(("embedding",))
        return DenseTable(weight), resolve(weight)

    def table(self) -> Table:
        """The embedding alone, where the head is another matrix."""
        if "embedding" in self.grids:
            return self.embedding()[0]
        return DenseTable(self._stacked(("embedding",)))

    def head(self) -> tuple[Linear, Table | None]:
        """A head of its own, and its rows where they can be made again of its codes."""
        if "head" not in self.grids:
            return resolve(self._stacked(("head",))), None
        rows, columns = self._find("head").shape
        matrix = self._low_bit("head", (rows, columns), None)
        return matrix, matrix

    def bias(self, *names: str) -> Tensor:
        """Vectors joined, in the run's precision."""
        return self._stacked(names)

    def norm(self, name: str, eps: float) -> RMSNorm:
        """From the float32 stream to rows in the matrices' precision."""
        return RMSNorm(self.vector(name), eps, self.dtype)

    def vector(self, name: str) -> Tensor:
        return self._find(name).to(device=self.device, dtype=torch.float32)

    def _low_bit(self, name: str, shape: tuple[int, int], bias: Tensor | None) -> LowBit:
        grid = self.grids[name]
        if grid.shape != shape:
            raise ValueError(f"{name} is {list(shape)} and its codes are {list(grid.shape)}")
        scheme = grid.scheme
        made = make_low_bit(
            grid.codes.to(self.device),
            grid.scale.to(self.device),
            None if grid.zero is None else grid.zero.to(self.device),
            bits=scheme.bits,
            dtype=self.dtype,
            form=choose_form(scheme, *shape, self.forms),
            bias=bias,
            activations=scheme.activations,
        )
        return made

    def _stacked(self, names: tuple[str, ...]) -> Tensor:
        """One tensor, or several joined along their first dimension, in the run's precision."""
        parts = [self._find(name).to(device=self.device, dtype=self.dtype) for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _find(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise ValueError(f"the model has no tensor named {name!r}")
        return self.tensors[name]


def crossing(linear: Linear, scheme: Scheme | None, rows: int) -> Linear:
    """The same weights, made dense for passes of more than `rows` rows; 0: never.

    A matrix in the run's precision (`scheme` None) is dense already.
    """
    low = bare(linear)
    if not rows or scheme is None or not crosses(scheme):
        return low
    return CrossoverLinear(cast(LowBit, low), rows)


def bare(linear: Linear) -> Linear:
    """Without its crossover."""
    return linear.low if isinstance(linear, CrossoverLinear) else linear


def crossover(linear: Linear) -> int:
    """Rows beyond which it is made dense; 0: never."""
    return linear.crossover if isinstance(linear, CrossoverLinear) else 0
