"""Shapes of models that anybody can have, smallest first: what to load where this one is too small.

Torch-free. From the `config.json` of each on the Hugging Face hub, under the name given.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.model.config import Family, ModelConfig

_SMOL, _QWEN = "HuggingFaceTB/SmolLM2", "Qwen/Qwen3"


def _smol(layers: int, hidden: int, heads: int, kv_heads: int, intermediate: int) -> ModelConfig:
    return _shape("llama", layers, hidden, heads, kv_heads, 64, intermediate, tied=True)


def _qwen(layers: int, hidden: int, heads: int, intermediate: int, tied: bool) -> ModelConfig:
    return _shape("qwen3", layers, hidden, heads, 8, 128, intermediate, tied)


def _shape(
    family: Family,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    intermediate: int,
    tied: bool,
) -> ModelConfig:
    qwen = family == "qwen3"
    return ModelConfig(
        family=family,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=intermediate,
        vocabulary=151_936 if qwen else 49_152,
        context=40_960 if qwen else 8192,
        rope_base=1_000_000.0 if qwen else 100_000.0,
        norm_eps=1e-6 if qwen else 1e-5,
        tied_head=tied,
        qk_norm=qwen,
    )


PUBLISHED: Mapping[str, ModelConfig] = {
    f"{_SMOL}-135M-Instruct": _smol(30, 576, 9, 3, 1536),
    f"{_SMOL}-360M-Instruct": _smol(32, 960, 15, 5, 2560),
    f"{_SMOL}-1.7B-Instruct": _smol(24, 2048, 32, 32, 8192),
    f"{_QWEN}-4B": _qwen(36, 2560, 32, 9728, tied=True),
    f"{_QWEN}-8B": _qwen(36, 4096, 32, 12_288, tied=False),
    f"{_QWEN}-14B": _qwen(40, 5120, 40, 17_408, tied=False),
    f"{_QWEN}-32B": _qwen(64, 5120, 64, 25_600, tied=False),
}
"""By weights, ascending."""
