"""The shape of a Llama-family decoder. Torch-free: the forge prices memory with it."""

from __future__ import annotations

from typing import Literal

import msgspec

Family = Literal["llama", "qwen2", "qwen3", "mistral"]


class RopeScaling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Llama 3's frequency scaling; `kind` "linear" divides every frequency by `factor`."""

    kind: Literal["llama3", "linear"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counts are elements, not bytes. `head_dim` is explicit: Qwen3's is not hidden / heads."""

    family: Family
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    context: int
    rope_base: float
    norm_eps: float
    tied_head: bool
    qkv_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None
    rope_scaling: RopeScaling | None = None

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def layer_matrix_elements(self) -> int:
        """Weights of one layer's seven matrices (q, k, v, o, gate, up, down)."""
        attention = self.hidden * (2 * self.query_width + 2 * self.kv_width)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def matrix_elements(self) -> int:
        """Weights read by one decode step: every layer's matrices and the output head."""
        return self.layers * self.layer_matrix_elements + self.vocabulary * self.hidden

    @property
    def kv_elements_per_token(self) -> int:
        """K and V of one token over all layers: 2 · layers · kv_heads · head_dim."""
        return 2 * self.layers * self.kv_width
