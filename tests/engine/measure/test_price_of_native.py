"""What runs in C for a few rows is priced as it runs: its tensors, and the calls it spares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from operator_calls import counted_calls

from engine import weight_format
from engine.config import (
    CacheConfig,
    EngineConfig,
    RunConfig,
    ScheduleConfig,
    WorkloadConfig,
)
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.price import price
from engine.run.engine import Engine
from kernels import native
from kernels.attention import decode
from kernels.rope import rotation

SHAPES: dict[str, dict[str, Any]] = {
    "heads of 32": {"head_dim": 32},
    "heads of 16, turned in torch": {"head_dim": 16},
    "norms in its heads": {"head_dim": 32, "qk_norm": True},
    "the default model's layers": {
        "hidden": 576, "heads": 9, "kv_heads": 3, "head_dim": 64, "intermediate": 1536,
    },
}  # fmt: skip


CACHES = {
    "contiguous": CacheConfig(),
    "paged": CacheConfig("paged", 16),
    "blocks of a token": CacheConfig("paged", 1),
    "8 bits": CacheConfig(bits=8),
    "8 bits paged": CacheConfig("paged", 16, bits=8),
}


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("load", [(40, 4, 1), (6, 20, 1), (20, 4, 4), (20, 4, 9), (20, 4, 17)])
@pytest.mark.parametrize("shape", SHAPES)
def test_account_and_calls(
    tiny_config: Callable[..., ModelConfig],
    tiny_tensors: Callable[[ModelConfig], dict[str, torch.Tensor]],
    shape: str,
    load: tuple[int, int, int],
    precision: str,
    cache: str,
) -> None:
    config = tiny_config(**{"context": 256, "vocabulary": 256, "layers": 6} | SHAPES[shape])
    model = Llama(config, tiny_tensors(config), precision)
    assert weight_format.NATIVE in model.low_bit_forms
    assert "in C" in model.kernel_path["norm"]
    prompt, output, batch = load
    asked = EngineConfig(
        WorkloadConfig(prompt, output),
        ScheduleConfig(batch, 0),
        RunConfig(precision, 2),
        CACHES[cache],
    )
    packed = "onednn-packed" in model.kernel_path["head"]
    found = price(asked, config, packed, model.low_bit_forms)
    allocated = Engine(model, asked).allocated()
    assert found.total == pytest.approx(sum(allocated.values()), rel=0.02)
    assert found.activations == pytest.approx(allocated["activations"], rel=0.04)
    prefill, decoded = counted_calls(Engine(model, asked), prompt, output, batch)
    assert found.prefill.dispatches == pytest.approx(prefill, rel=0.1)
    assert found.decode.dispatches == pytest.approx(decoded, rel=0.07)


def test_the_figures_are_those_of_the_kernels() -> None:
    assert native.FEW_ROWS == weight_format.NATIVE_ROWS
    assert decode.WIDTHS == weight_format.NATIVE_HEADS
    assert 2 * rotation.PAIRS == weight_format.NATIVE_PAIRS
