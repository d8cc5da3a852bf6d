"""AWQ: weights that meet large activations are worth more of the grid (Lin et al., 2023).

A column's scale s = a^α, with a the mean magnitude of its activations, is folded into the weights
before they are rounded; α is searched for the least error of the matrix's *output*. Then each group
may be clipped: a narrower grid that cuts a few outliers and resolves the rest more finely, where
that lowers the output's error again. Both searches see activations through their Gram matrix
G = Xᵀ X alone: for an error D of the weights, ‖X Dᵀ‖² = Σ (D G) ∘ D.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.quant.folded import Given, press_folded
from engine.quant.grid import GridWeight, fit_grid, grid_between, round_to
from engine.quant.method import Job, Pressed
from engine.quant.rtn import rtn
from engine.quant.walk import gram, output_error
from engine.weight_format import Scheme, groups_of

STEPS = 20
"""Exponents tried: 0, 1/20 ... 19/20."""
CLIPS = tuple(1 - 0.05 * step for step in range(10))
"""Shares of a group's range tried, from all of it to 55 %."""


def press_awq(job: Job) -> Iterator[Pressed]:
    """Every quantised matrix of the job; heads that share a value channel leave o unscaled."""
    return press_folded(job, _Aware())


@dataclass(frozen=True)
class _Aware:
    def scale(self, given: Given) -> Tensor | None:
        magnitude = given.inputs.abs().mean(dim=0).clamp_min_(1e-8)  # [K]
        hessian = gram(given.inputs)
        best, least = None, _squared_error(given.weight, rtn_of(given, None), hessian)
        for step in range(1, STEPS):
            scale = magnitude ** (step / STEPS)
            scale = scale / (scale.max() * scale.min()).sqrt()
            error = _squared_error(given.weight, rtn_of(given, scale), hessian)
            if error < least:
                best, least = scale, error
        return best

    def round(self, given: Given) -> tuple[GridWeight, float]:
        hessian = gram(given.inputs)
        grid = clipped(given.weight, hessian, given.scheme, given.name)
        return grid, output_error(given.weight, grid.dequantise(), hessian)


def rtn_of(given: Given, scale: Tensor | None) -> Tensor:
    """What is left of the weights when they are rounded with `scale` folded in: [N, K]."""
    if scale is None:
        return rtn(given.weight, given.scheme, given.name).dequantise()
    return rtn(given.weight * scale, given.scheme, given.name).dequantise() / scale


def clipped(weight: Tensor, hessian: Tensor, scheme: Scheme, name: str) -> GridWeight:
    """Round to nearest, every group on the range of `CLIPS` that errs least on the activations.

    `hessian` [K, K]. Errors of different groups are taken to be unrelated, so that each can be
    judged by its own block of the matrix.
    """
    rows, columns = weight.shape
    groups = groups_of(scheme, columns)
    size = columns // groups
    if size == columns:  # a whole row's outliers are too many to clip for the sake of the rest
        return rtn(weight, scheme, name)
    blocks = torch.stack(
        [hessian[at : at + size, at : at + size] for at in range(0, columns, size)]
    )
    grouped = weight.reshape(rows, groups, size)
    low, high = grouped.amin(dim=-1), grouped.amax(dim=-1)
    scale, zero = fit_grid(weight, scheme, name)
    least = torch.full((rows, groups), torch.inf)
    for share in CLIPS:
        narrow = grid_between(low * share, high * share, scheme, name)
        kept = round_to(weight, *narrow, scheme).dequantise()
        error = (weight - kept).view(rows, groups, size).transpose(0, 1)  # [G, N, size]
        cost = ((error @ blocks) * error).sum(dim=-1).T.contiguous()  # [N, G]
        better = cost < least
        least = torch.where(better, cost, least)
        scale = torch.where(better, narrow[0], scale)
        if zero is not None and narrow[1] is not None:
            zero = torch.where(better, narrow[1], zero)
    return round_to(weight, scale, zero, scheme)


def _squared_error(weight: Tensor, kept: Tensor, hessian: Tensor) -> float:
    error = weight - kept
    return float(((error @ hessian) * error).sum())
