"""The angle each channel pair turns by, a position: base^(-2i/D), and its long-context scalings."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def inverse_frequencies(head_dim: int, base: float) -> Tensor:
    """[D/2] float32, radians a position, from fastest to slowest."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
    return 1.0 / base**exponents


def scale_linear(frequencies: Tensor, factor: float) -> Tensor:
    """Position interpolation (Chen et al., 2023): every pair turns `factor` times slower."""
    return frequencies / factor


def scale_llama3(
    frequencies: Tensor,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_context: int,
) -> Tensor:
    """Llama 3.1's scaling: slow pairs are interpolated, fast ones kept, a ramp in between.

    A pair whose wavelength exceeds original_context / low_freq_factor turns `factor` times slower;
    one whose wavelength is under original_context / high_freq_factor is left alone.
    """
    turns = original_context * frequencies / (2 * math.pi)  # full turns within the old context
    ramp = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
    kept = ramp.clamp(0.0, 1.0)
    return frequencies * kept + frequencies / factor * (1.0 - kept)
