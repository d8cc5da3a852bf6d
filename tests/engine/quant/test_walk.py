"""Calibration inputs, against a decoder written out plainly and against the engine's own pass."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from engine.model.config import Family, ModelConfig
from engine.model.llama import Llama
from engine.model.tensor_names import expected_shapes
from engine.quant.walk import MATRICES, Walk, gram, layer_tensors, output_error
from engine.run.plain_cache import plain_cache
from engine.run.runner import Runner

Layer = dict[str, Tensor]


class Stopped(Exception):
    pass


def make_config(family: Family = "llama", window: int | None = None) -> ModelConfig:
    return ModelConfig(
        family=family,
        layers=3,
        hidden=32,
        heads=4,
        kv_heads=2,
        head_dim=8,
        intermediate=48,
        vocabulary=40,
        context=64,
        rope_base=10_000.0,
        norm_eps=1e-5,
        tied_head=True,
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        sliding_window=window,
    )


def make_tensors(config: ModelConfig) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(7)
    return {
        name: torch.randn(shape, generator=source) * 0.2 + (1.0 if "norm" in name else 0.0)
        for name, shape in expected_shapes(config).items()
    }


def text(length: int) -> list[int]:
    return [(7 * place + place // 5) % 40 for place in range(length)]


def engine_streams(config: ModelConfig, tensors: Layer, ids: list[int]) -> list[Tensor]:
    """The residual stream before every layer and after the last, by the engine's own layers."""
    model = Llama(config, tensors, "float32")
    runner = Runner(model, plain_cache(model, len(ids)))
    runner.cache.admit(0, ids, len(ids))
    batch = runner.layout.of_tokens("prefill", (0,), [ids])
    with torch.inference_mode():
        outputs = model.layer_outputs(batch.input_ids, batch.positions, batch.context)
        return [tensors["embedding"][torch.tensor(ids)], *(hidden.clone() for hidden in outputs)]


def plain_inputs(config: ModelConfig, layer: Layer, stream: Tensor) -> dict[str, Tensor]:
    """What the matrices of a llama layer are given, a query at a time, in float64."""
    wide = {name: tensor.to(torch.float64) for name, tensor in layer.items()}
    x = stream.to(torch.float64)

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + config.norm_eps).sqrt() * weight

    def turn(vector: Tensor, position: int) -> Tensor:
        half = config.head_dim // 2
        turned = vector.clone()
        for i in range(half):
            angle = position * config.rope_base ** (-2 * i / config.head_dim)
            a, b = vector[i], vector[i + half]
            turned[i] = a * math.cos(angle) - b * math.sin(angle)
            turned[i + half] = b * math.cos(angle) + a * math.sin(angle)
        return turned

    size, served = config.head_dim, config.heads // config.kv_heads
    qkv = norm(x, wide["attention_norm"])
    attended = torch.zeros(len(x), config.query_width, dtype=torch.float64)
    for head in range(config.heads):
        rows = slice(head * size, (head + 1) * size)
        shared = slice(head // served * size, (head // served + 1) * size)
        for here in range(len(x)):
            query = turn(qkv[here] @ wide["q"][rows].T, here)
            keys = torch.stack([turn(qkv[j] @ wide["k"][shared].T, j) for j in range(here + 1)])
            values = qkv[: here + 1] @ wide["v"][shared].T
            attended[here, rows] = torch.softmax(keys @ query / math.sqrt(size), 0) @ values
    x = x + attended @ wide["o"].T
    gate_up = norm(x, wide["mlp_norm"])
    gate = gate_up @ wide["gate"].T
    down = gate / (1 + torch.exp(-gate)) * (gate_up @ wide["up"].T)
    return {"qkv": qkv, "o": attended, "gate_up": gate_up, "down": down}


def test_inputs_of_every_matrix_are_those_of_a_plain_decoder() -> None:
    config = make_config()
    tensors = make_tensors(config)
    walk = Walk(tensors["embedding"], config, text(9))
    layer = layer_tensors(tensors, 0)
    expected = plain_inputs(config, layer, walk.hidden)
    found = walk.inputs(layer)
    assert tuple(found) == MATRICES
    for name in MATRICES:
        torch.testing.assert_close(found[name], expected[name].to(torch.float32), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("family", "window"), [("llama", None), ("qwen2", None), ("qwen3", None), ("mistral", 5)]
)
def test_the_stream_is_the_engines_in_every_window(family: Family, window: int | None) -> None:
    config = make_config(family, window)
    tensors = make_tensors(config)
    ids = text(23)
    walk = Walk(tensors["embedding"], config, ids, window=10)
    windows = [ids[start : start + 10] for start in (0, 10, 20)]
    expected = [engine_streams(config, tensors, part) for part in windows]
    for layer in range(config.layers):
        torch.testing.assert_close(
            walk.hidden, torch.cat([streams[layer] for streams in expected]), rtol=0, atol=1e-5
        )
        walk.advance(layer_tensors(tensors, layer))
    last = torch.cat([streams[-1] for streams in expected])
    torch.testing.assert_close(walk.hidden, last, rtol=0, atol=1e-5)


def test_a_matrix_replaced_on_the_way_feeds_what_comes_after_it() -> None:
    """Replacing each matrix when its inputs are given equals a walk over the replaced model."""
    config = make_config()
    tensors = make_tensors(config)
    changed = {
        name: tensor.round(decimals=1) if tensor.dim() == 2 and name != "embedding" else tensor
        for name, tensor in tensors.items()
    }
    walk, other = (Walk(tensors["embedding"], config, text(20)) for _ in range(2))
    parts = {"qkv": ("q", "k", "v"), "o": ("o",), "gate_up": ("gate", "up"), "down": ("down",)}
    for index in range(config.layers):
        layer, target = layer_tensors(tensors, index), layer_tensors(changed, index)
        for name, rows in walk.stages(layer):
            torch.testing.assert_close(rows, other.inputs(target)[name])
            layer.update({part: target[part] for part in parts[name]})
        other.advance(target)
        torch.testing.assert_close(walk.hidden, other.hidden)


def test_looking_at_inputs_does_not_move_the_walk() -> None:
    config = make_config()
    tensors = make_tensors(config)
    walk = Walk(tensors["embedding"], config, text(12))
    before = walk.hidden.clone()
    walk.inputs(layer_tensors(tensors, 0))
    assert torch.equal(walk.hidden, before)
    assert torch.equal(tensors["embedding"], make_tensors(config)["embedding"])


def test_weights_saved_in_sixteen_bits_are_walked_in_thirty_two() -> None:
    config = make_config()
    narrow = {name: tensor.to(torch.bfloat16) for name, tensor in make_tensors(config).items()}
    wide = {name: tensor.to(torch.float32) for name, tensor in narrow.items()}
    walks = [Walk(tensors["embedding"], config, text(8)) for tensors in (narrow, wide)]
    for walk, tensors in zip(walks, (narrow, wide), strict=True):
        walk.advance(layer_tensors(tensors, 0))
    assert walks[0].hidden.dtype == torch.float32
    assert torch.equal(walks[0].hidden, walks[1].hidden)


def test_windows_are_never_longer_than_the_models_context() -> None:
    config = make_config()
    tensors = make_tensors(config)
    ids = text(70)
    walk = Walk(tensors["embedding"], config, ids, window=512)
    walk.advance(layer_tensors(tensors, 0))
    second = engine_streams(config, tensors, ids[64:])[1]
    torch.testing.assert_close(walk.hidden[64:], second, rtol=0, atol=1e-5)


def test_abort_is_heard_before_every_windows_share() -> None:
    config = make_config()
    tensors = make_tensors(config)
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 7:
            raise Stopped

    walk = Walk(tensors["embedding"], config, text(40), window=10, check=check)
    with pytest.raises(Stopped):
        walk.advance(layer_tensors(tensors, 0))
    assert calls == 7  # four windows normalised, and two attended


def test_what_is_no_text_of_the_model_is_refused() -> None:
    config = make_config()
    embedding = make_tensors(config)["embedding"]
    with pytest.raises(ValueError, match="at least one token"):
        Walk(embedding, config, [])
    with pytest.raises(ValueError, match="0 to 39"):
        Walk(embedding, config, [3, 40])
    with pytest.raises(ValueError, match="at least 1"):
        Walk(embedding, config, [3], window=0)
    with pytest.raises(ValueError, match="no layer 9"):
        layer_tensors({"embedding": embedding}, 9)


def test_output_error_is_that_of_the_outputs() -> None:
    source = torch.Generator().manual_seed(3)
    rows = torch.randn(50, 6, generator=source) @ torch.randn(6, 6, generator=source)
    weight, noise = torch.randn(4, 6, generator=source), torch.randn(4, 6, generator=source) * 0.1
    lost, whole = (
        torch.linalg.matrix_norm((rows @ matrix.T).to(torch.float64)) for matrix in (noise, weight)
    )
    found = output_error(weight, weight + noise, gram(rows))
    assert found == pytest.approx(float(lost / whole), rel=1e-4)
    assert output_error(weight, weight, gram(rows)) == 0.0
    assert output_error(torch.zeros(4, 6), noise, gram(rows)) == 0.0
