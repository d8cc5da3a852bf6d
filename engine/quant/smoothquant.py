"""SmoothQuant: eight bits on both sides of the product (Xiao et al., 2022).

A few channels of the activations are a hundred times the rest, and a grid for each token must reach
them. A scale s_j = max|X_j|^α / max|W_j|^(1-α) folded across the seam moves the difficulty into the
weights, which have range to spare. α is 0.5 in the paper; here the best of a few for the output's
error with both sides rounded, which is what W8A8 is judged by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.quant.folded import Given, press_folded
from engine.quant.grid import GridWeight
from engine.quant.method import Job, Pressed
from engine.quant.rtn import rtn

EXPONENTS = (0.25, 0.5, 0.75)
ROWS = 512
"""Tokens on which a scale is judged, spread evenly over the text."""


def press_smoothquant(job: Job) -> Iterator[Pressed]:
    """Every quantised matrix of the job, rounded to nearest on its scheme's grid."""
    return press_folded(job, _Smooth())


@dataclass(frozen=True)
class _Smooth:
    def scale(self, given: Given) -> Tensor | None:
        activations = given.inputs.abs().amax(dim=0).clamp_min(1e-5)  # [K]
        weights = given.weight.abs().amax(dim=0).clamp_min(1e-5)
        best, least = None, both_sides_error(given, None)
        for exponent in EXPONENTS:
            scale = activations**exponent / weights ** (1 - exponent)
            scale = (scale / scale.log().mean().exp()).clamp(1e-4, 1e4)
            error = both_sides_error(given, scale)
            if error < least:
                best, least = scale, error
        return best

    def round(self, given: Given) -> tuple[GridWeight, float]:
        return rtn(given.weight, given.scheme, given.name), both_sides_error(given, None)


def both_sides_error(given: Given, scale: Tensor | None) -> float:
    """‖X Wᵀ - X̂ Ŵᵀ‖ / ‖X Wᵀ‖ with `scale` [K] moved across and both sides rounded."""
    rows = given.inputs[:: max(len(given.inputs) // ROWS, 1)][:ROWS]
    weight = given.weight
    truth = rows @ weight.T
    if scale is not None:
        rows, weight = rows / scale, weight * scale
    kept = rtn(weight, given.scheme, given.name).dequantise()
    error = truth - round_tokens(rows, given.scheme.activations) @ kept.T
    whole = float(torch.linalg.vector_norm(truth))
    return float(torch.linalg.vector_norm(error)) / whole if whole else 0.0


def round_tokens(rows: Tensor, bits: int) -> Tensor:
    """Each token [T, K] on a symmetric grid of its own, as the int8 kernels round it; 16 bits are
    left as they are."""
    if bits >= 16:
        return rows
    most = (1 << (bits - 1)) - 1
    step = rows.abs().amax(dim=-1, keepdim=True).clamp_min(1e-30) / most
    return (rows / step).round() * step
