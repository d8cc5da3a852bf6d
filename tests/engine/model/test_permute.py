"""Reordering channels changes the layout of the weights and not what the model computes."""

from __future__ import annotations

import math
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.gguf_tensors import iterate_gguf_tensors
from engine.model.layout import inspect_gguf
from engine.model.loader import load_model
from engine.model.permute import ChannelOrders, channel_order
from engine.model.store import ModelSource
from engine.model.tensor_names import expected_shapes


def config(family: str = "llama", tied: bool = True) -> ModelConfig:
    return ModelConfig(
        family=family,
        layers=2,
        hidden=48,
        heads=6,
        kv_heads=2,
        head_dim=16,
        intermediate=80,
        vocabulary=50,
        context=64,
        rope_base=10_000.0,
        norm_eps=1e-5,
        tied_head=tied,
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
    )


def random_tensors(config: ModelConfig) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) / math.sqrt(shape[-1])
        for name, shape in expected_shapes(config).items()
    }


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rotate(x: Tensor, base: float) -> Tensor:
    """Half-split rotary embedding of x [S, heads, D], one position at a time."""
    out = torch.empty_like(x)
    half = x.shape[-1] // 2
    for position in range(x.shape[0]):
        for i in range(half):
            angle = position * base ** (-2 * i / x.shape[-1])
            a, b = x[position, :, i], x[position, :, i + half]
            out[position, :, i] = a * math.cos(angle) - b * math.sin(angle)
            out[position, :, i + half] = b * math.cos(angle) + a * math.sin(angle)
    return out


def plain_logits(c: ModelConfig, t: dict[str, Tensor], ids: list[int]) -> Tensor:
    """A decoder written out plainly, in float64: [S, V]."""
    x = t["embedding"][ids]
    count = len(ids)
    mask = torch.full((count, count), -torch.inf, dtype=x.dtype).triu(1)
    for index in range(c.layers):
        layer = {k.split(".", 2)[2]: v for k, v in t.items() if k.startswith(f"layers.{index}.")}
        h = norm(x, layer["attention_norm"], c.norm_eps)
        q, k, v = (h @ layer[p].T + layer.get(f"{p}_bias", 0) for p in "qkv")
        q, k, v = (y.reshape(count, -1, c.head_dim) for y in (q, k, v))
        if c.qk_norm:
            q = norm(q, layer["q_norm"], c.norm_eps)
            k = norm(k, layer["k_norm"], c.norm_eps)
        q, k = rotate(q, c.rope_base), rotate(k, c.rope_base)
        heads = []
        for head in range(c.heads):
            shared = head * c.kv_heads // c.heads
            scores = q[:, head] @ k[:, shared].T / math.sqrt(c.head_dim) + mask
            heads.append(scores.softmax(-1) @ v[:, shared])
        x = x + torch.cat(heads, -1) @ layer["o"].T
        h = norm(x, layer["mlp_norm"], c.norm_eps)
        gate, up = h @ layer["gate"].T, h @ layer["up"].T
        x = x + (torch.nn.functional.silu(gate) * up) @ layer["down"].T
    return norm(x, t["final_norm"], c.norm_eps) @ t.get("head", t["embedding"]).T


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_stay_the_same(family: str, tied: bool) -> None:
    c = config(family, tied)
    tensors = random_tensors(c)
    orders = ChannelOrders(c)
    moved = {name: orders.apply(name, tensor) for name, tensor in tensors.items()}
    ids = [3, 14, 15, 9, 26, 5, 35]
    before, after = plain_logits(c, tensors, ids), plain_logits(c, moved, ids)
    torch.testing.assert_close(after, before, rtol=1e-10, atol=1e-10)
    for name in ("embedding", "layers.0.v", "layers.1.o", "layers.0.gate", "layers.1.down"):
        assert not torch.equal(moved[name], tensors[name])


def test_one_forgotten_tensor_shows() -> None:
    """The comparison above is sharp: leave any one tensor in its old order and it fails."""
    c = config("qwen2")
    tensors = random_tensors(c)
    orders = ChannelOrders(c)
    moved = {name: orders.apply(name, tensor) for name, tensor in tensors.items()}
    ids = [3, 14, 15]
    before = plain_logits(c, tensors, ids)
    for name in ("embedding", "final_norm", "layers.0.v_bias", "layers.1.o", "layers.0.mlp_norm"):
        after = plain_logits(c, moved | {name: tensors[name]}, ids)
        assert (after - before).abs().max() > 1e-3


def test_every_order_is_a_reordering_and_fixed() -> None:
    order = channel_order("residual", 576)
    assert sorted(order.tolist()) == list(range(576))
    assert order[:8].tolist() == channel_order("residual", 576)[:8].tolist()
    assert order.tolist() != channel_order("residual", 576, seed="another").tolist()
    assert order.tolist() != channel_order("layers.0.inner", 576).tolist()
    # Kept quantised weights depend on this order: these figures may never change.
    assert channel_order("residual", 10).tolist() == [7, 9, 8, 4, 3, 1, 6, 2, 0, 5]


def test_unknown_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match="layers.0.router"):
        ChannelOrders(config()).apply("layers.0.router", torch.zeros(2, 2))


@pytest.mark.model
def test_blocks_of_the_file_are_gone(default_model_path: Path) -> None:
    """Packing a matrix again in its own blocks loses nothing; after the reordering it does."""
    layout = inspect_gguf(default_model_path)
    names = ("layers.7.q", "layers.7.o", "layers.7.up", "layers.7.down")
    before = {n: t for n, t in iterate_gguf_tensors(layout) if n in names}
    orders = ChannelOrders(layout.config)
    for name in names:
        after = orders.apply(name, before[name])
        assert requantised_error(before[name]) < 1e-3
        assert requantised_error(after) > 0.03


def requantised_error(tensor: Tensor) -> float:
    """Relative error of one more pass through the file's 4-bit blocks of 32."""
    kind = gguf.GGMLQuantizationType.Q4_1
    values = tensor.numpy()
    again = gguf.quants.dequantize(gguf.quants.quantize(values, kind), kind)
    return float(np.linalg.norm(again - values) / np.linalg.norm(values))


def test_only_quantised_files_are_reordered(tiny_gguf, tmp_path: Path, own_cache: Path) -> None:
    plain = tiny_gguf().write(tmp_path / "plain.gguf")
    packed = tiny_gguf(kind=gguf.GGMLQuantizationType.Q8_0).write(tmp_path / "packed.gguf")
    for path, permuted in ((plain, False), (packed, True)):
        model = load_model(ModelSource("gguf", path, "tiny"))
        assert model.report.permuted is permuted
        file_order = dict(iterate_gguf_tensors(inspect_gguf(path)))
        assert torch.equal(model.tensors["embedding"], file_order["embedding"]) is not permuted
        ids = [1, 2, 3]
        expected = plain_logits(model.config, file_order, ids)
        torch.testing.assert_close(
            plain_logits(model.config, model.tensors, ids), expected, rtol=1e-3, atol=1e-3
        )
