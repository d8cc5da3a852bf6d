"""A random model of two layers that runs in a millisecond, for this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.llama import Llama

VOCABULARY = 96


def tiny_config(window: int | None = None, **changes: Any) -> ModelConfig:
    plain = ModelConfig(
        family="mistral" if window else "llama",
        layers=2,
        hidden=32,
        heads=4,
        kv_heads=2,
        head_dim=8,
        intermediate=48,
        vocabulary=VOCABULARY,
        context=200,
        rope_base=10_000.0,
        norm_eps=1e-5,
        tied_head=True,
        sliding_window=window,
    )
    return msgspec.structs.replace(plain, **changes)


def random_tensors(config: ModelConfig) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(21)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) * 2 / shape[-1] ** 0.5

    tensors = {
        "embedding": random(config.vocabulary, config.hidden),
        "final_norm": torch.ones(config.hidden),
    }
    if not config.tied_head:
        tensors["head"] = random(config.vocabulary, config.hidden)
    for layer in range(config.layers):
        parts = {
            "attention_norm": torch.ones(config.hidden),
            "q": random(config.query_width, config.hidden),
            "k": random(config.kv_width, config.hidden),
            "v": random(config.kv_width, config.hidden),
            "o": random(config.hidden, config.query_width),
            "mlp_norm": torch.ones(config.hidden),
            "gate": random(config.intermediate, config.hidden),
            "up": random(config.intermediate, config.hidden),
            "down": random(config.hidden, config.intermediate),
        }
        if config.qk_norm:
            parts |= {"q_norm": random(config.head_dim) + 1, "k_norm": random(config.head_dim) + 1}
        tensors |= {f"layers.{layer}.{name}": tensor for name, tensor in parts.items()}
    return tensors


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """So small a model gains nothing from threads, and the machine has other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Llama]:
    """make_model(precision, window, spoil, **changes of the shape).

    `spoil` may change the tensors before they are used.
    """

    def make(
        precision: str = "float32",
        window: int | None = None,
        spoil: Callable[[dict[str, Tensor]], None] = lambda tensors: None,
        **changes: Any,
    ) -> Llama:
        config = tiny_config(window, **changes)
        tensors = random_tensors(config)
        spoil(tensors)
        return Llama(config, tensors, precision)

    return make


@pytest.fixture(scope="session")
def model(make_model: Callable[..., Llama]) -> Llama:
    return make_model()


@pytest.fixture
def prompt() -> Callable[[int, int], list[int]]:
    """prompt(length, seed): random tokens."""

    def draw(length: int, seed: int = 0) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(0, VOCABULARY, (length,), generator=generator).tolist()

    return draw
