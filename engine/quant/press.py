"""Methods whose work is a function of one matrix or one layer, walked over a model.

What they do to it stands in `rtn`, `gptq` and `qat`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from engine.quant.gptq import gptq
from engine.quant.grid import GridWeight
from engine.quant.method import Job, Pressed, scheme_of, stacked, watched_gram, weight_error
from engine.quant.qat import train_layer
from engine.quant.rtn import rtn
from engine.quant.walk import Walk, output_error
from engine.quant.weights import STACKS
from engine.recipe import Matrix


def press_rtn(job: Job) -> Iterator[Pressed]:
    """Every matrix rounded to nearest; errors are of the weights, as no activations are seen."""
    for index, matrices in enumerate(job.layers):
        layer = job.layer(index)
        for matrix in matrices:
            job.check()
            weight = stacked(layer, matrix.name)
            grid = rtn(weight, scheme_of(matrix), f"layers.{index}.{matrix.name}")
            yield Pressed(matrix, grid, weight, weight_error(weight, grid.dequantise()))


def press_gptq(job: Job) -> Iterator[Pressed]:
    """Every matrix by GPTQ, on the inputs that its quantised predecessors give it.

    The last quantised layer ends the walk: what comes after it is not needed.
    """
    walk = job.walk()
    for index in range(job.needed):
        layer = job.layer(index)
        wanted = {matrix.name: matrix for matrix in job.layers[index]}
        for name, inputs in walk.stages(layer):
            if name not in wanted:
                continue
            matrix, hessian = wanted[name], watched_gram(inputs, job.check)
            weight = stacked(layer, name)
            label = f"layers.{index}.{name}"
            grid = gptq(weight, hessian, scheme_of(matrix), name=label, check=job.check)
            kept = grid.dequantise()
            replace(layer, name, kept)
            yield Pressed(matrix, grid, weight, output_error(weight, kept, hessian))


def press_qat(job: Job) -> Iterator[Pressed]:
    """Every layer trained to give what the full one gives in the full model, though it reads what
    the quantised layers before it give. Layers that an earlier try finished are taken from it."""
    full, quantised = job.walk(), job.walk()
    for index in range(job.needed):
        layer = job.layer(index)
        before = quantised.hidden.clone()
        full.advance(layer)
        if not job.layers[index]:
            quantised.advance(layer)
            continue
        grids = None if job.finished is None else job.finished.load(index)
        if grids is None:
            grids = train_layer(
                job.model, layer, job.recipe.layers[index], before, full.hidden, check=job.check
            )
            if job.finished is not None:
                job.finished.save(index, grids)
        yield from _trained(quantised, layer, job.layers[index], grids)


def _trained(
    walk: Walk,
    layer: dict[str, Tensor],
    matrices: tuple[Matrix, ...],
    grids: dict[str, GridWeight],
) -> Iterator[Pressed]:
    """The layer's matrices with their errors on what the walk brings; moves the walk past it."""
    wanted = {matrix.name: matrix for matrix in matrices}
    for name, inputs in walk.stages(layer):
        if name in wanted:
            weight, kept = stacked(layer, name), grids[name].dequantise()
            replace(layer, name, kept)
            yield Pressed(
                wanted[name], grids[name], weight, output_error(weight, kept, watched_gram(inputs))
            )


def replace(layer: dict[str, Tensor], name: str, kept: Tensor) -> None:
    """Put the matrix `name` [N, K] in the place of the tensors stacked in it."""
    parts = STACKS[name]
    rows = torch.split(kept, [len(layer[part]) for part in parts])
    layer.update(zip(parts, rows, strict=True))
