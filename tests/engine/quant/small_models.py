"""Models of a few thousand weights in every shape the loader knows, for the tests of methods.

Some channels of the norms are far larger than the rest, as trained models have them: without such
activations no method has anything to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from engine.config import WeightsConfig
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.model.tensor_names import expected_shapes
from engine.quant.weights import STACKS, QuantisedWeights
from engine.recipe import Recipe, recipe_of
from engine.run import scoring

VOCABULARY = 96


def small_config(**changes: object) -> ModelConfig:
    fields: dict[str, object] = {
        "family": "llama",
        "layers": 3,
        "hidden": 64,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 16,
        "intermediate": 96,
        "vocabulary": VOCABULARY,
        "context": 256,
        "rope_base": 10_000.0,
        "norm_eps": 1e-5,
        "tied_head": True,
    }
    return ModelConfig(**{**fields, **changes})  # type: ignore[arg-type]


SHAPES: Mapping[str, ModelConfig] = {
    "grouped heads": small_config(),
    "a KV head a query head": small_config(kv_heads=4),
    "grouped, biases": small_config(family="qwen2", qkv_bias=True),
    "ungrouped, biases": small_config(family="qwen2", qkv_bias=True, kv_heads=4),
    "q/k norm, heads wider than hidden": small_config(family="qwen3", qk_norm=True, head_dim=32),
    "untied head": small_config(tied_head=False),
    "sliding window": small_config(family="mistral", sliding_window=12),
}


def small_tensors(config: ModelConfig, seed: int = 5) -> dict[str, Tensor]:
    source = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for name, shape in expected_shapes(config).items():
        values = torch.randn(shape, generator=source)
        if name.endswith("norm"):
            values = 1 + 0.2 * values
            if name.endswith(("attention_norm", "mlp_norm")):
                values[::13] *= 12
        elif len(shape) == 2:
            values = values / shape[1] ** 0.5
        tensors[name] = values
    return tensors


def small_text(length: int, seed: int = 3) -> list[int]:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (length,), generator=source).tolist()


def small_recipe(config: ModelConfig, **knobs: object) -> Recipe:
    """Knobs of `weights` by their short names; groups of 16 where the width has groups."""
    return recipe_of(WeightsConfig(**{"group": 16, **knobs}), config)  # type: ignore[arg-type]


def scores(config: ModelConfig, tensors: Mapping[str, Tensor], text: Sequence[int]) -> Tensor:
    """[S, V] by the engine, in float32."""
    return scoring.logits(Llama(config, tensors, "float32"), text)


def rebuilt(
    config: ModelConfig, tensors: Mapping[str, Tensor], weights: QuantisedWeights
) -> dict[str, Tensor]:
    """The loader's tensors with the values that `weights` stand for: q + code arithmetic written
    out in float64."""
    heights = {name: shape[0] for name, shape in expected_shapes(config).items()}
    found = {**tensors, **weights.tensors}
    for name, grid in weights.grids.items():
        rows, columns = grid.codes.shape
        size = columns // grid.scale.shape[1]
        steps = grid.codes.to(torch.float64) - 2 ** (grid.scheme.bits - 1)
        values = steps * grid.scale.to(torch.float64).repeat_interleave(size, 1)
        if grid.zero is not None:
            values += grid.zero.to(torch.float64).repeat_interleave(size, 1)
        whole = values.to(torch.float32)
        prefix, dot, matrix = name.rpartition(".")
        if not dot:
            found[name] = whole
            continue
        start = 0
        for part in STACKS[matrix]:
            stop = start + heights[f"{prefix}.{part}"]
            found[f"{prefix}.{part}"] = whole[start:stop]
            start = stop
        assert start == rows
    return found
