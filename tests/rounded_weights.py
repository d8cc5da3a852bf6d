"""Random models rounded to nearest, and what their codes stand for, for tests in every folder.

The values are worked out here from the definition, not by the code under test.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine.config import WeightsConfig
from engine.model.config import ModelConfig
from engine.quant.grid import GridWeight, fit_grid, round_to
from engine.quant.weights import QuantisedWeights
from engine.quantised import Quantised
from engine.recipe import Recipe, matrices, recipe_of

PARTS = {"qkv": ("q", "k", "v"), "o": ("o",), "gate_up": ("gate", "up"), "down": ("down",)}


def rounded(
    model: ModelConfig, tensors: Mapping[str, Tensor], made_by: WeightsConfig | Recipe
) -> QuantisedWeights:
    """The model rounded to nearest by a build's knobs, or by a recipe."""
    recipe = made_by if isinstance(made_by, Recipe) else recipe_of(made_by, model)
    grids: dict[str, GridWeight] = {}
    for matrix in matrices(recipe, model):
        if matrix.scheme is None:
            continue
        if matrix.layer is None:
            name, weight = matrix.name, tensors[matrix.name]
        else:
            prefix = f"layers.{matrix.layer}."
            name = prefix + matrix.name
            weight = torch.cat([tensors[prefix + part] for part in PARTS[matrix.name]])
        scale, zero = fit_grid(weight.float(), matrix.scheme)
        grids[name] = round_to(weight.float(), scale, zero, matrix.scheme)
    report = Quantised(recipe.method, 0, 0.0, 1.5, False, recipe.calibration, 0, model.layers)
    return QuantisedWeights(grids, report)


def meant(grid: GridWeight) -> Tensor:
    """w = scale (q - 2^(b-1)) [+ zero], number by number: [N, K] float32."""
    rows, columns = grid.codes.shape
    each = columns // grid.scale.shape[1]
    scale = grid.scale.repeat_interleave(each, dim=1)
    weight = scale * (grid.codes.float() - 2 ** (grid.scheme.bits - 1))
    return weight if grid.zero is None else weight + grid.zero.repeat_interleave(each, dim=1)


def meant_tensors(
    model: ModelConfig, tensors: Mapping[str, Tensor], weights: QuantisedWeights
) -> dict[str, Tensor]:
    """The loader's tensors with the values that the codes stand for."""
    found = {**tensors, **weights.tensors}
    for name, grid in weights.grids.items():
        prefix, _, matrix = name.rpartition(".")
        parts = PARTS.get(matrix)
        if parts is None:
            found[name] = meant(grid)
            continue
        sizes = [tensors[f"{prefix}.{part}"].shape[0] for part in parts]
        for part, rows in zip(parts, torch.split(meant(grid), sizes), strict=True):
            found[f"{prefix}.{part}"] = rows
    return found
