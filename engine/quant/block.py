"""One decoder layer as a function that can be differentiated: float32, whole windows, no cache.

The engine's own layers overwrite what they can and run without gradients. Here the same network is
written once more, plainly, for methods that train weights. Terms as in `engine.model.llama`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.model.config import ModelConfig
from engine.model.rotary import rotary_frequencies
from kernels.norm.reference import rms_norm
from kernels.rope.reference import rotate


@dataclass(frozen=True)
class Block:
    """One layer of a model of this shape, over windows of text."""

    config: ModelConfig
    frequencies: Tensor
    """[D / 2], as `engine.model.rotary` gives them."""

    @classmethod
    def of(cls, config: ModelConfig) -> Block:
        return cls(config, rotary_frequencies(config))

    def forward(self, layer: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Windows of the residual stream [W, L, H] float32 -> the stream after the layer.

        `layer` holds its tensors in float32 by their names in it ("q", "attention_norm", ...);
        those that require gradients get them.
        """
        config = self.config
        windows, length, _ = x.shape

        def linear(rows: Tensor, part: str) -> Tensor:
            return functional.linear(rows, layer[part], layer.get(f"{part}_bias"))

        normed = rms_norm(x, layer["attention_norm"], config.norm_eps)
        query = linear(normed, "q").view(windows, length, config.heads, config.head_dim)
        key = linear(normed, "k").view(windows, length, config.kv_heads, config.head_dim)
        value = linear(normed, "v").view(windows, length, config.kv_heads, config.head_dim)
        if config.qk_norm:
            query = rms_norm(query, layer["q_norm"], config.norm_eps)
            key = rms_norm(key, layer["k_norm"], config.norm_eps)
        x = x + linear(self._attend(self._turn(query), self._turn(key), value), "o")
        normed = rms_norm(x, layer["mlp_norm"], config.norm_eps)
        return x + linear(functional.silu(linear(normed, "gate")) * linear(normed, "up"), "down")

    def _turn(self, vectors: Tensor) -> Tensor:
        """Rotary positions 0 .. L - 1 in every window: [W, L, heads, D]."""
        windows, length = vectors.shape[:2]
        positions = torch.arange(length).repeat(windows)
        return rotate(vectors.flatten(0, 1), positions, self.frequencies).view_as(vectors)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Causal attention within each window: [W, L, heads · D]."""
        length, window = query.shape[1], self.config.sliding_window
        group = self.config.heads // self.config.kv_heads
        keys, values = (side.repeat_interleave(group, dim=2) for side in (key, value))
        mask = None
        if window is not None and window < length:
            place = torch.arange(length)
            behind = place[:, None] - place
            mask = (behind >= 0) & (behind < window)
        attended = functional.scaled_dot_product_attention(
            query.transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=mask,
            is_causal=mask is None,
        )
        return attended.transpose(1, 2).flatten(2)
