"""Weights as a recipe made them: grids for what is quantised, tensors for what a fold changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from engine.model.config import ModelConfig
from engine.quant.grid import GridWeight
from engine.quantised import Quantised
from engine.recipe import Matrix

STACKS: Mapping[str, tuple[str, ...]] = {
    "qkv": ("q", "k", "v"),
    "o": ("o",),
    "gate_up": ("gate", "up"),
    "down": ("down",),
}
"""A layer's matrices as the engine multiplies by them, and the loader's tensors stacked in each."""


@dataclass(frozen=True)
class QuantisedWeights:
    """Weights of one model under one recipe.

    `grids` by the engine's name of a matrix (`layers.3.qkv`, `embedding`, `head`); one that is not
    there is kept in the run's precision. `tensors` by the loader's name are those a method changed
    and left in full: norms that took up a scale, a bias before one. They replace the model's own.
    """

    grids: Mapping[str, GridWeight]
    report: Quantised
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


def matrix_name(matrix: Matrix) -> str:
    """`layers.3.qkv`, `embedding` or `head`: the key of `QuantisedWeights.grids`."""
    return matrix.name if matrix.layer is None else f"layers.{matrix.layer}.{matrix.name}"


def stack_heights(model: ModelConfig, name: str) -> tuple[int, ...]:
    """Output rows of each tensor stacked in the matrix `name` (qkv, o, gate_up or down)."""
    rows = {
        "q": model.query_width,
        "k": model.kv_width,
        "v": model.kv_width,
        "o": model.hidden,
        "gate": model.intermediate,
        "up": model.intermediate,
        "down": model.hidden,
    }
    return tuple(rows[part] for part in STACKS[name])
