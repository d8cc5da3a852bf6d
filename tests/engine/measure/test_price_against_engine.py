"""Prices against the engine's own account, its real passes, and counted operator calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.config import EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.price import JOIN_ROWS as PRICED_JOIN_ROWS
from engine.price import prefill_passes, price
from engine.run.engine import Engine, SamplingParams
from engine.schedule.scheduler import JOIN_ROWS

Tensors = Callable[[ModelConfig], dict[str, torch.Tensor]]
Configs = Callable[..., ModelConfig]

SHAPES: list[dict[str, Any]] = [
    {},
    {"tied_head": False, "qkv_bias": True},
    {"qk_norm": True},
    {"intermediate": 64, "vocabulary": 64},
    {"hidden": 256, "heads": 8, "kv_heads": 8, "head_dim": 64, "intermediate": 64},
]
LOADS = [(40, 4, 1, 0), (40, 4, 4, 0), (200, 8, 4, 16), (30, 4, 64, 0), (128, 24, 8, 64)]


def engine_config(load: tuple[int, int, int, int], precision: str) -> EngineConfig:
    prompt, output, batch, chunk = load
    return EngineConfig(
        WorkloadConfig(prompt, output), ScheduleConfig(batch, chunk), RunConfig(precision, 1)
    )


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_predicted_memory_is_within_two_percent_of_the_engines_account(
    tiny_config: Configs,
    tiny_tensors: Tensors,
    shape: dict[str, Any],
    load: tuple[int, int, int, int],
    precision: str,
) -> None:
    model_config = tiny_config(**shape)
    model = Llama(model_config, tiny_tensors(model_config), precision)
    config = engine_config(load, precision)
    allocated = Engine(model, config).allocated()
    packed = "packed" in model.head.form
    predicted = price(config, model_config, packed_head=packed).parts
    assert predicted.keys() == allocated.keys()
    for part, size in allocated.items():
        assert predicted[part] == pytest.approx(size, rel=0.02), part


@pytest.mark.parametrize("load", [*LOADS, (64, 3, 5, 0), (10, 3, 7, 16), (130, 2, 3, 0)])
def test_prefill_passes_are_the_ones_the_engine_makes(
    tiny_config: Configs, tiny_tensors: Tensors, load: tuple[int, int, int, int]
) -> None:
    model_config = tiny_config(layers=1)
    engine = Engine(
        Llama(model_config, tiny_tensors(model_config), "float32"), engine_config(load, "float32")
    )
    for request in range(load[2]):
        prompt = [(request + place) % 256 for place in range(load[0])]
        engine.add_request(prompt, SamplingParams(max_tokens=load[1], ignore_eos=True))
    seen = []
    while engine.has_work:
        step = engine.step()
        if step.phase == "prefill":
            seen.append((len(step.sequence_ids), step.rows))
    expected = [
        (len(one), sum(part.count for part in one))
        for one in prefill_passes(engine_config(load, "float32"))
    ]
    assert seen == expected


def test_the_joining_rule_is_the_schedulers() -> None:
    assert PRICED_JOIN_ROWS == JOIN_ROWS


class CallCounter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("layers", [4, 12])
@pytest.mark.parametrize("load", [(40, 4, 1, 0), (40, 4, 9, 0), (128, 4, 3, 0)])
def test_priced_operator_calls_are_those_that_are_made(
    tiny_config: Configs,
    tiny_tensors: Tensors,
    load: tuple[int, int, int, int],
    layers: int,
    precision: str,
) -> None:
    model_config = tiny_config(layers=layers)
    config = engine_config(load, precision)
    model = Llama(model_config, tiny_tensors(model_config), precision)
    if "packed" not in model.head.form:
        pytest.skip("the counts are those of the packed forms")
    engine = Engine(model, config)
    for _ in range(load[2]):
        engine.add_request(range(load[0]), SamplingParams(max_tokens=load[1], ignore_eos=True))
    counts: dict[str, list[int]] = {"prefill": [], "decode": []}
    while engine.has_work:
        with CallCounter() as counter:
            step = engine.step()
        counts[step.phase].append(counter.calls)
    priced = price(config, model_config)
    assert priced.prefill.dispatches == pytest.approx(sum(counts["prefill"]), rel=0.05)
    assert priced.decode.dispatches == pytest.approx(
        sum(counts["decode"]) / len(counts["decode"]), rel=0.05
    )
