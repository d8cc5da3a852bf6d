"""What a method of quantisation is to the driver: a walk over the layers that yields matrices.

    press(job) -> Pressed, Pressed, ...

A method yields each of the job's matrices once, in the order of the network, as soon as it is done:
progress is told and an abort noticed between them, and inside long ones by `job.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.quant.grid import GridWeight
from engine.quant.walk import Walk, layer_tensors, nothing
from engine.quant.weights import STACKS
from engine.recipe import Matrix, Recipe, matrices
from engine.weight_format import Scheme

GRAM_ROWS = 4_096


class Finished(Protocol):
    """Layers that an earlier try at the same job has finished, for a method that takes minutes."""

    def load(self, layer: int) -> dict[str, GridWeight] | None:
        """Grids by their names in the layer (qkv, o, gate_up, down); None where it is to be
        made."""
        ...

    def save(self, layer: int, grids: Mapping[str, GridWeight]) -> None: ...


@dataclass(frozen=True)
class Job:
    """A model's layers to be quantised as `recipe` says.

    `tensors` are the model's, by the loader's names. `calibration_ids` is empty for a method that
    looks at no activations. `check` raises where the player stopped the job: a method calls it at
    least once a second. `finished` is None where nothing outlives the job.
    """

    tensors: Mapping[str, Tensor]
    model: ModelConfig
    recipe: Recipe
    calibration_ids: Sequence[int] = ()
    check: Callable[[], None] = nothing
    finished: Finished | None = None

    @cached_property
    def layers(self) -> tuple[tuple[Matrix, ...], ...]:
        """For each layer its matrices that are quantised, in the order of the network."""
        found: list[list[Matrix]] = [[] for _ in self.recipe.layers]
        for matrix in matrices(self.recipe, self.model):
            if matrix.layer is not None and matrix.scheme is not None:
                found[matrix.layer].append(matrix)
        return tuple(map(tuple, found))

    @property
    def needed(self) -> int:
        """Layers up to the last that is quantised: what comes after it need not be walked."""
        return max((index + 1 for index, found in enumerate(self.layers) if found), default=0)

    def layer(self, index: int) -> dict[str, Tensor]:
        """One layer's tensors by their names in it, float32."""
        return layer_tensors(self.tensors, index)

    def walk(self) -> Walk:
        """The calibration text before the first layer."""
        return Walk(self.tensors["embedding"], self.model, self.calibration_ids, check=self.check)


@dataclass(frozen=True)
class Pressed:
    """One matrix of a layer, done.

    `before` [N, K] float32 is what was rounded: the model's matrix, or that with scales folded in.
    `error` as `LayerError.error`. `tensors` are the layer's other tensors that a fold changed, by
    the loader's names; they may come with any matrix of the layer.
    """

    matrix: Matrix
    grid: GridWeight
    before: Tensor
    error: float
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


Method = Callable[[Job], Iterator[Pressed]]


def scheme_of(matrix: Matrix) -> Scheme:
    """The scheme of a matrix that is quantised."""
    assert matrix.scheme is not None
    return matrix.scheme


def stacked(layer: Mapping[str, Tensor], name: str) -> Tensor:
    """The matrix `name` of a layer as the engine multiplies by it: [N, K] float32."""
    parts = [layer[part].to(torch.float32) for part in STACKS[name]]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def folded_tensors(
    index: int, layer: Mapping[str, Tensor], folded: Mapping[str, Tensor], grids: Collection[str]
) -> dict[str, Tensor]:
    """What folds changed in layer `index` and no grid holds, by the loader's names.

    `folded` shares with `layer` the tensors that were left alone; `grids` are the matrices (qkv,
    o, gate_up, down) that are kept as grids.
    """
    held = {part for name in grids for part in STACKS[name]}
    return {
        f"layers.{index}.{name}": tensor
        for name, tensor in folded.items()
        if tensor is not layer[name] and name not in held
    }


@torch.no_grad()
def watched_gram(rows: Tensor, check: Callable[[], None] = nothing) -> Tensor:
    """Xᵀ X [K, K] of inputs X [T, K], some thousands of rows at a time: `check` is called between
    and may raise."""
    total = torch.zeros(rows.shape[1], rows.shape[1])
    for part in torch.split(rows, GRAM_ROWS):
        check()
        total.addmm_(part.T, part)
    return total


def weight_error(weight: Tensor, kept: Tensor) -> float:
    """‖W - Ŵ‖ / ‖W‖; 0 where the matrix is all zeros."""
    whole = float(torch.linalg.vector_norm(weight))
    return float(torch.linalg.vector_norm(weight - kept)) / whole if whole else 0.0
