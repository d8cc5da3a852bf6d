"""Methods that move scales from activations into weights before they round: the walk they share.

For each layer, with what the full model gives it: choose a scale at every seam whose matrix is
quantised, fold them all (`fold`), then round every matrix, each to its own grid. The network's
function is unchanged by the folds, so the walk goes on with the layer as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.quant.fold import Seam, fold, seams
from engine.quant.grid import GridWeight
from engine.quant.method import Job, Pressed, scheme_of, stacked
from engine.quant.weights import STACKS
from engine.recipe import Matrix
from engine.weight_format import Scheme


@dataclass(frozen=True)
class Given:
    """A matrix and what it is given: `weight` [N, K] and rows of `inputs` [T, K], float32."""

    weight: Tensor
    inputs: Tensor
    scheme: Scheme
    name: str


class Scaler(Protocol):
    """What a method decides; `press_folded` does the rest."""

    def scale(self, given: Given) -> Tensor | None:
        """The scale [K] of a matrix's columns, positive; None where none helps."""
        ...

    def round(self, given: Given) -> tuple[GridWeight, float]:
        """The grid of a matrix whose scales are folded in, and its relative output error."""
        ...


def press_folded(job: Job, scaler: Scaler) -> Iterator[Pressed]:
    """The job's matrices in order; what folds changed in full tensors comes with the first of each
    layer."""
    walk = job.walk()
    last = max((index for index, found in enumerate(job.layers) if found), default=-1)
    for index in range(last + 1):
        layer = job.layer(index)
        if job.layers[index]:
            yield from _press_layer(job, scaler, index, layer, walk.inputs(layer))
        walk.advance(layer)


def _press_layer(
    job: Job, scaler: Scaler, index: int, layer: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
) -> Iterator[Pressed]:
    wanted = {matrix.name: matrix for matrix in job.layers[index]}
    folded, given = dict(layer), dict(inputs)
    for seam in seams(job.model):
        if seam.matrix not in wanted or _kept_full(seam, wanted):
            continue
        job.check()
        scale = scaler.scale(_given(folded, given, wanted[seam.matrix], index))
        if scale is not None:
            folded = fold(folded, seam, scale)
            given[seam.matrix] = given[seam.matrix] / scale
    changed = _full_tensors(layer, folded, wanted, index)
    for matrix in job.layers[index]:
        job.check()
        one = _given(folded, given, matrix, index)
        grid, error = scaler.round(one)
        yield Pressed(matrix, grid, one.weight, error, changed)
        changed = {}


def _kept_full(seam: Seam, wanted: Mapping[str, Matrix]) -> bool:
    """Whether the fold would rescale a matrix that is kept in the run's precision: that costs a
    full copy of it and is not done."""
    scaled = {name for name, parts in STACKS.items() if set(parts) & set(seam.before)}
    return not scaled <= wanted.keys()


def _given(
    layer: Mapping[str, Tensor], inputs: Mapping[str, Tensor], matrix: Matrix, index: int
) -> Given:
    label = f"layers.{index}.{matrix.name}"
    return Given(stacked(layer, matrix.name), inputs[matrix.name], scheme_of(matrix), label)


def _full_tensors(
    before: Mapping[str, Tensor],
    after: Mapping[str, Tensor],
    wanted: Mapping[str, Matrix],
    index: int,
) -> dict[str, Tensor]:
    """Norms and biases that folds changed, by the loader's names; matrices are in their grids."""
    in_grids = {part for name in wanted for part in STACKS[name]}
    return {
        f"layers.{index}.{name}": tensor
        for name, tensor in after.items()
        if name not in in_grids and not torch.equal(tensor, before[name])
    }
