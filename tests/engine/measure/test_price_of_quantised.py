"""Prices of quantised builds against the engine's own account and counted operator calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from known_loads import LOADS, Load
from operator_calls import counted_calls
from rounded_weights import rounded

from engine import product, weight_format
from engine.config import (
    EngineConfig,
    MemoryConfig,
    RunConfig,
    ScheduleConfig,
    WeightsConfig,
    WorkloadConfig,
)
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.price import Price, price
from engine.run.engine import Engine
from kernels.linear import (
    bitstream,
    compiled,
    dispatch,
    int4_group,
    int8,
    int8_plain,
    low_bit,
    low_bit_forms,
    row_major,
    widened,
)

Configs = Callable[..., ModelConfig]
Tensors = Callable[[ModelConfig], dict[str, torch.Tensor]]

SHAPES: dict[str, dict[str, Any]] = {
    "small": {},
    "untied with biases": {"tied_head": False, "qkv_bias": True},
    "wider": {"hidden": 128, "intermediate": 384},
    "little but attention": {
        "hidden": 256,
        "heads": 8,
        "kv_heads": 8,
        "head_dim": 64,
        "intermediate": 64,
    },
    "the default model's layers": {
        "hidden": 576,
        "heads": 9,
        "kv_heads": 3,
        "head_dim": 64,
        "intermediate": 1536,
        "vocabulary": 4096,
    },
}
BUILDS: dict[str, WeightsConfig] = {
    "4": WeightsConfig(4),
    "8": WeightsConfig(8),
    "3": WeightsConfig(3),
    "2": WeightsConfig(2),
    "4 throughout, never dense": WeightsConfig(4, embedding=4, crossover=0),
    "8 by 8": WeightsConfig(8, method="smoothquant"),
    "8 in groups, never dense": WeightsConfig(8, group=32, crossover=0),
    "mixed": WeightsConfig(mlp=4, attention=3),
    "8 never dense, edges": WeightsConfig(2, crossover=0, edges=8),
    "symmetric, soon dense": WeightsConfig(4, symmetric="on", embedding=3, crossover=4),
}
MLP_ALONE = WeightsConfig(mlp=4)


@pytest.fixture
def make_model(tiny_config: Configs, tiny_tensors: Tensors) -> Callable[..., Llama]:
    def make(shape: str, build: WeightsConfig, precision: str, layers: int = 2) -> Llama:
        config = tiny_config(
            **{"context": 1024, "vocabulary": 1024, "layers": layers} | SHAPES[shape]
        )
        tensors = tiny_tensors(config)
        weights = rounded(config, tensors, build)
        return Llama(config, tensors, precision, quantised=weights, crossover=build.crossover)

    return make


def engine_config(
    load: Load, build: WeightsConfig, precision: str, budget: int = 0
) -> EngineConfig:
    prompt, output, batch, chunk = load
    return EngineConfig(
        WorkloadConfig(prompt, output),
        ScheduleConfig(batch, chunk),
        RunConfig(precision, 1),
        weights=build,
        memory=MemoryConfig(budget),
    )


def priced(model: Llama, config: EngineConfig) -> Price:
    packed = "onednn-packed" in model.kernel_path["head"]
    return price(config, model.config, packed, model.low_bit_forms)


@pytest.mark.parametrize(("turn", "build"), [*enumerate(BUILDS)])
@pytest.mark.parametrize("shape", SHAPES)
def test_predicted_memory_is_the_engine_s_account(
    make_model: Callable[..., Llama], shape: str, build: str, turn: int
) -> None:
    """Weights to the byte, the whole within 2 %; each build on loads in turn."""
    for step, precision in enumerate(("float32", "bfloat16")):
        model = make_model(shape, BUILDS[build], precision)
        for number in (turn + step, turn + step + 3):
            load = LOADS[number % len(LOADS)]
            config = engine_config(load, BUILDS[build], precision)
            engine = Engine(model, config)
            allocated, predicted = engine.allocated(), priced(model, config)
            assert predicted.plan == engine.plan
            assert predicted.weights == allocated["weights"]
            assert predicted.total == pytest.approx(sum(allocated.values()), rel=0.02), load
            assert predicted.activations == pytest.approx(allocated["activations"], rel=0.04), load


@pytest.mark.parametrize("build", ["4", "8", "2"])
def test_fewer_bits_leave_the_vessel_to_the_cache_and_stay_inside(
    make_model: Callable[..., Llama], build: str
) -> None:
    load = (200, 8, 64, 64)
    whole = engine_config(load, WeightsConfig(), "bfloat16", budget=90)
    config = engine_config(load, BUILDS[build], "bfloat16", budget=90)
    model = make_model("the default model's layers", BUILDS[build], "bfloat16")
    engine = Engine(model, config)
    predicted = priced(model, config)
    assert engine.plan == predicted.plan
    assert engine.plan.slots > price(whole, model.config).plan.slots
    assert predicted.vessel is not None
    assert sum(engine.allocated().values()) <= predicted.vessel * 1.02


def test_a_build_whose_rows_pass_the_crossover_holds_its_largest_matrix_dense(
    make_model: Callable[..., Llama],
) -> None:
    """Of gate and up 3072 x 576 numbers; of the head, 4096 x 576, only where so many sequences."""
    found = {}
    for batch, crossover in ((4, 0), (4, 32), (40, 0), (40, 32)):
        build = WeightsConfig(4, embedding=4, crossover=crossover)
        model = make_model("the default model's layers", build, "bfloat16")
        config = engine_config((33, 8, batch, 0), build, "bfloat16")
        found[batch, crossover] = priced(model, config).activations
        assert Engine(model, config).allocated()["activations"] == pytest.approx(
            found[batch, crossover], rel=0.02
        )
    matrix, head = 3072 * 576 * 2, 4096 * 576 * 2
    # Where the processor multiplies in float32, a piece of it and the rows are there widened too.
    wide = product.Dense(3072, 576).making(33) if dispatch.widens(torch.bfloat16) else 0
    assert matrix < found[4, 32] - found[4, 0] < 1.2 * (matrix + wide)
    assert 0.7 * head < found[40, 32] - found[40, 0] < 1.2 * (head + wide)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("load", [(40, 4, 1, 0), (20, 4, 9, 0), (60, 4, 3, 0)])
@pytest.mark.parametrize("build", BUILDS)
def test_priced_operator_calls_are_those_that_are_made(
    make_model: Callable[..., Llama], build: str, load: Load, precision: str
) -> None:
    model = make_model("wider", BUILDS[build], precision, 6)
    config = engine_config(load, BUILDS[build], precision)
    prefill, decode = counted_calls(Engine(model, config), load[0], load[1], load[2])
    found = priced(model, config)
    assert found.prefill.dispatches == pytest.approx(prefill, rel=0.1)
    assert found.decode.dispatches == pytest.approx(decode, rel=0.1)


def test_the_figures_are_those_of_the_kernels() -> None:
    assert product.PIECE == compiled.PIECE == low_bit._PIECE == int4_group._PIECE
    assert compiled.FUSED_ROWS == product.FUSED_ROWS
    assert compiled.PANEL == weight_format.FUSED_PANEL
    assert int8_plain.WEIGHT_ONLY_ROWS == product.WHOLE_ROWS
    assert int8_plain.WEIGHT_ONLY_INPUTS == product.WHOLE_INPUTS
    assert int8.BLOCKED_CODES == weight_format.INT8_BLOCKED_CODES
    assert low_bit_forms.BLOCKED == weight_format.BLOCKED
    assert low_bit_forms.WIDENED == weight_format.WIDENED
    assert low_bit_forms.FUSED_FIRST == weight_format.FUSED_FIRST
    assert bitstream.RUN == weight_format.FUSED_RUN
    assert widened.FEW_ROWS == product.WIDENED_ROWS and widened.PIECE == product.PIECE
    in_c = {str(dtype).removeprefix("torch."): n for dtype, n in row_major.IN_C_ROWS.items()}
    assert in_c == product.IN_C_ROWS
    assert weight_format.WIDENED_ELEMENTS == widened.PIECE


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("head_dim", [16, 32])
@pytest.mark.parametrize("build", ["4", "8", "2", "mixed", "symmetric, soon dense", "mlp alone"])
def test_a_compiled_product_is_priced_as_what_it_makes(
    tiny_config: Configs,
    tiny_tensors: Tensors,
    build: str,
    head_dim: int,
    precision: str,
) -> None:
    """Its account and its calls, where the machine would rather run it than torch's own. Heads of
    16 are not turned in C, so that the first half of a layer is not joined."""
    asked_for = BUILDS.get(build, MLP_ALONE)
    config = tiny_config(
        context=1024,
        vocabulary=1024,
        layers=6,
        hidden=128,
        intermediate=384,
        head_dim=head_dim,
    )
    weights = rounded(config, tensors := tiny_tensors(config), asked_for)
    found_here = low_bit_forms.available_low_bit_forms(getattr(torch, precision))
    forms = (*found_here, weight_format.FUSED_FIRST)
    model = Llama(
        config,
        tensors,
        precision,
        quantised=weights,
        crossover=asked_for.crossover,
        forms=forms,
    )
    assert "compiled" in model.kernel_path["linear"]
    joined = build != "mlp alone" or dispatch.reads_rows(model.dtype)  # dense ones are too
    halves = (head_dim == 32 and joined, joined)
    for layer in model.layers:
        assert (layer.before is not None, layer.after is not None) == halves
    loads = [(40, 4, 1, 0), (20, 4, 9, 0), (3, 8, 1, 0)]
    if precision == "float32":  # in 16 bits, of so many rows alike many scores are tied
        loads.append((2, 6, 12, 0))
    for load in loads:
        asked = engine_config(load, asked_for, precision)
        found, allocated = priced(model, asked), Engine(model, asked).allocated()
        assert found.weights == allocated["weights"]
        assert found.total == pytest.approx(sum(allocated.values()), rel=0.02)
        assert found.activations == pytest.approx(allocated["activations"], rel=0.04)
        prefill, decode = counted_calls(Engine(model, asked), *load[:3])
        assert found.prefill.dispatches == pytest.approx(prefill, rel=0.1)
        assert found.decode.dispatches == pytest.approx(decode, rel=0.1)
