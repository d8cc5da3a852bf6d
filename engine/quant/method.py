"""What a method of quantisation is to the driver: a walk over the layers that yields matrices.

    press(job) -> Pressed, Pressed, ...

A method yields each of the job's matrices once, in the order of the network, as soon as it is done:
progress is told and an abort noticed between them, and inside long ones by `job.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.quant.grid import GridWeight
from engine.quant.walk import Walk, layer_tensors, nothing
from engine.quant.weights import STACKS
from engine.recipe import Matrix, Recipe, matrices
from engine.weight_format import Scheme


@dataclass(frozen=True)
class Job:
    """A model's layers to be quantised as `recipe` says.

    `tensors` are the model's, by the loader's names. `calibration_ids` is empty for a method that
    looks at no activations. `check` raises where the player stopped the job: a method calls it at
    least once a second.
    """

    tensors: Mapping[str, Tensor]
    model: ModelConfig
    recipe: Recipe
    calibration_ids: Sequence[int] = ()
    check: Callable[[], None] = nothing

    @cached_property
    def layers(self) -> tuple[tuple[Matrix, ...], ...]:
        """For each layer its matrices that are quantised, in the order of the network."""
        found: list[list[Matrix]] = [[] for _ in self.recipe.layers]
        for matrix in matrices(self.recipe, self.model):
            if matrix.layer is not None and matrix.scheme is not None:
                found[matrix.layer].append(matrix)
        return tuple(map(tuple, found))

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


def weight_error(weight: Tensor, kept: Tensor) -> float:
    """‖W - Ŵ‖ / ‖W‖; 0 where the matrix is all zeros."""
    whole = float(torch.linalg.vector_norm(weight))
    return float(torch.linalg.vector_norm(weight - kept)) / whole if whole else 0.0
