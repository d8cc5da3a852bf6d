"""The rotary frequencies of a model: its base, and the scaling its family was trained with."""

from __future__ import annotations

from torch import Tensor

from engine.model.config import ModelConfig
from kernels.rope.frequencies import inverse_frequencies, scale_linear, scale_llama3


def rotary_frequencies(config: ModelConfig) -> Tensor:
    """[D / 2] float32, radians a position, from fastest to slowest."""
    frequencies = inverse_frequencies(config.head_dim, config.rope_base)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return scale_linear(frequencies, scaling.factor)
    return scale_llama3(
        frequencies,
        scaling.factor,
        scaling.low_freq_factor,
        scaling.high_freq_factor,
        scaling.original_context,
    )
