"""Methods that move scales from activations into weights before they round: the walk they share.

For each layer, with what the full model gives it: choose a scale at every seam whose matrix is
quantised, fold them all (`fold`), then round every matrix, each to its own grid. Folds leave the
network's function as it was, so the walk goes on with the layer unchanged.

Of a matrix's inputs X [T, K] only what methods ask is kept, [K, K] and [K] and a sample of rows: a
long calibration text costs time and no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.quant.fold import fold, seams
from engine.quant.grid import GridWeight
from engine.quant.method import Job, Pressed, folded_tensors, scheme_of, stacked, watched_gram
from engine.quant.walk import nothing
from engine.recipe import Matrix
from engine.weight_format import Scheme

SAMPLE = 512
"""Rows of the inputs that are kept as they are, evenly spread over the text."""


@dataclass(frozen=True)
class Watched:
    """What a matrix is given over the calibration text: Xᵀ X [K, K], mean |x| and max |x| [K], and
    some rows of X [R, K] themselves."""

    gram: Tensor
    mean: Tensor
    peak: Tensor
    sample: Tensor

    @classmethod
    def of(cls, rows: Tensor, check: Callable[[], None] = nothing) -> Watched:
        """`rows` [T, K] float32. `check` is called every few thousand rows, and may raise."""
        sizes = rows.abs()
        sample = rows[:: -(-len(rows) // SAMPLE)].clone()
        return cls(watched_gram(rows, check), sizes.mean(dim=0), sizes.amax(dim=0), sample)

    def divided(self, scale: Tensor) -> Watched:
        """The same of inputs each of whose channels is divided by `scale` [K]."""
        return Watched(
            self.gram / (scale[:, None] * scale),
            self.mean / scale,
            self.peak / scale,
            self.sample / scale,
        )


@dataclass(frozen=True)
class Given:
    """A matrix [N, K] float32 and what it is given. A search calls `check` at least once a second:
    it may raise to stop."""

    weight: Tensor
    watched: Watched
    scheme: Scheme
    name: str
    check: Callable[[], None] = nothing


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
    for index in range(job.needed):
        layer = job.layer(index)
        watched: dict[str, Watched] = {}
        wanted = {matrix.name for matrix in job.layers[index]}
        for name, rows in walk.stages(layer):
            if name in wanted:
                watched[name] = Watched.of(rows, job.check)
        yield from _press_layer(job, scaler, index, layer, watched)


def _press_layer(
    job: Job, scaler: Scaler, index: int, layer: Mapping[str, Tensor], seen: Mapping[str, Watched]
) -> Iterator[Pressed]:
    """Every fold before any rounding: the last of them changes rows of up, which is rounded with
    gate."""
    wanted = {matrix.name: matrix for matrix in job.layers[index]}
    folded, watched = dict(layer), dict(seen)

    def given(matrix: Matrix) -> Given:
        job.check()
        return Given(
            stacked(folded, matrix.name),
            watched[matrix.name],
            scheme_of(matrix),
            f"layers.{index}.{matrix.name}",
            job.check,
        )

    for seam in seams(job.model, wanted):
        scale = scaler.scale(given(wanted[seam.matrix]))
        if scale is not None:
            folded = fold(folded, seam, scale)
            watched[seam.matrix] = watched[seam.matrix].divided(scale)
    changed = folded_tensors(index, layer, folded, wanted)
    for matrix in job.layers[index]:
        one = given(matrix)
        grid, error = scaler.round(one)
        yield Pressed(matrix, grid, one.weight, error, changed)
        changed = {}


def norm_ratio(error: Tensor, whole: Tensor) -> float:
    """‖error‖ / ‖whole‖; 0 where the whole is."""
    size = float(torch.linalg.vector_norm(whole))
    return float(torch.linalg.vector_norm(error)) / size if size else 0.0
