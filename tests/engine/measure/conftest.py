"""A random model small enough to run in milliseconds, and a tokenizer of bytes, for this folder."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.model.config import ModelConfig


@pytest.fixture(autouse=True)
def _one_thread() -> object:
    """Tiny models gain nothing from threads, and other processes want the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build_config(**changes: object) -> ModelConfig:
    fields: dict[str, object] = {
        "family": "llama",
        "layers": 2,
        "hidden": 64,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 16,
        "intermediate": 128,
        "vocabulary": 320,
        "context": 512,
        "rope_base": 10_000.0,
        "norm_eps": 1e-5,
        "tied_head": True,
    }
    return ModelConfig(**{**fields, **changes})  # type: ignore[arg-type]


def build_tensors(config: ModelConfig) -> dict[str, torch.Tensor]:
    """Random weights of the loader's names and shapes; the same for the same config."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) / shape[-1] ** 0.5

    hidden, inner = config.hidden, config.intermediate
    tensors = {"embedding": random(config.vocabulary, hidden), "final_norm": torch.ones(hidden)}
    if not config.tied_head:
        tensors["head"] = random(config.vocabulary, hidden)
    for layer in range(config.layers):
        parts = {
            "attention_norm": torch.ones(hidden),
            "mlp_norm": torch.ones(hidden),
            "q": random(config.query_width, hidden),
            "k": random(config.kv_width, hidden),
            "v": random(config.kv_width, hidden),
            "o": random(hidden, config.query_width),
            "gate": random(inner, hidden),
            "up": random(inner, hidden),
            "down": random(hidden, inner),
        }
        if config.qkv_bias:
            for name, width in (("q", "query_width"), ("k", "kv_width"), ("v", "kv_width")):
                parts[f"{name}_bias"] = random(getattr(config, width))
        if config.qk_norm:
            parts |= {name: torch.ones(config.head_dim) for name in ("q_norm", "k_norm")}
        tensors |= {f"layers.{layer}.{name}": tensor for name, tensor in parts.items()}
    return tensors


@pytest.fixture
def tiny_config() -> Callable[..., ModelConfig]:
    return build_config


@pytest.fixture
def tiny_tensors() -> Callable[[ModelConfig], dict[str, torch.Tensor]]:
    return build_tensors


class ByteTokenizer:
    """One token a byte; 256 ends a text, 257 to 319 are never spoken."""

    eos_ids = frozenset({256})
    bos_id = None
    vocabulary_size = 320

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: object) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")  # type: ignore[attr-defined]

    def chat(self, messages: object) -> list[int]:
        return [byte for _, text in messages for byte in text.encode()]  # type: ignore[attr-defined]


@pytest.fixture
def byte_tokenizer() -> ByteTokenizer:
    return ByteTokenizer()
