"""SmoothQuant: eight bits on both sides of the product.

A few channels of the activations are a hundred times the rest, and the grid of a token must reach
them. A scale s_j = max|X_j|^α / max|W_j|^(1-α) folded across the seam moves the difficulty into the
weights, which have a grid for each row and range to spare. α is 0.5 in the paper; here the best of
a few, none among them, for the error of the output with both sides rounded: that is what runs.

Source: Xiao, Lin, Seznec, Wu, Demouth, Han: SmoothQuant, 2022.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from engine.quant.folded import Given, norm_ratio, press_folded
from engine.quant.grid import GridWeight
from engine.quant.method import Job, Pressed
from engine.quant.rtn import rtn

STRENGTHS = (0.25, 0.4, 0.5, 0.6, 0.75)
"""The exponents α that are tried."""

LEAST = 1e-5
"""Of the largest: channels without weights or inputs are taken to have this much."""


def press_smoothquant(job: Job) -> Iterator[Pressed]:
    """Every quantised matrix of the job, rounded to nearest on its scheme's grid.

    Errors are of the output with the inputs rounded too, where the scheme says that they are.
    """
    return press_folded(job, _Smooth())


class _Smooth:
    def scale(self, given: Given) -> Tensor | None:
        truth = given.watched.sample @ given.weight.T
        best, least = None, both_sides_error(given, None, truth)
        for strength in STRENGTHS:
            given.check()
            scale = scale_at(given.watched.peak, given.weight, strength)
            error = both_sides_error(given, scale, truth)
            if error < least:
                best, least = scale, error
        return best

    def round(self, given: Given) -> tuple[GridWeight, float]:
        grid = rtn(given.weight, given.scheme, given.name)
        sample = given.watched.sample
        made = round_tokens(sample, given.scheme.activations) @ grid.dequantise().T
        truth = sample @ given.weight.T
        return grid, norm_ratio(truth - made, truth)


def scale_at(peak: Tensor, weight: Tensor, strength: float) -> Tensor:
    """max|X_j|^α / max|W_j|^(1-α) [K] from `peak` [K] and `weight` [N, K], its mean logarithm 0."""
    inputs = peak.clamp_min(LEAST * float(peak.max()) or 1.0)
    columns = weight.abs().amax(dim=0)
    columns = columns.clamp_min(LEAST * float(columns.max()) or 1.0)
    scale = inputs**strength / columns ** (1 - strength)
    return scale / scale.log().mean().exp()


def both_sides_error(given: Given, scale: Tensor | None, truth: Tensor) -> float:
    """‖X Wᵀ - X̂ Ŵᵀ‖ / ‖X Wᵀ‖ over the sample, with `scale` [K] moved across and both sides rounded;
    `truth` [R, N] is X Wᵀ."""
    rows, weight = given.watched.sample, given.weight
    if scale is not None:
        rows, weight = rows / scale, weight * scale
    kept = rtn(weight, given.scheme, given.name).dequantise()
    return norm_ratio(truth - round_tokens(rows, given.scheme.activations) @ kept.T, truth)


def round_tokens(rows: Tensor, bits: int) -> Tensor:
    """Each token [T, K] on a symmetric grid of its own, as the int8 kernels round it; 16 bits are
    left as they are."""
    if bits >= 16:
        return rows
    most = (1 << (bits - 1)) - 1
    step = rows.abs().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / most
    return (rows / step).round_().mul_(step)
