"""The differentiable layer against the engine's own, and what training makes of a layer."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from engine.model.config import Family, ModelConfig
from engine.model.llama import Llama
from engine.model.tensor_names import expected_shapes
from engine.quant.block import Block
from engine.quant.grid import GridWeight, fit_grid, round_to
from engine.quant.qat import train_layer
from engine.quant.walk import layer_tensors
from engine.quant.weights import STACKS
from engine.recipe import LayerRecipe
from engine.run.plain_cache import plain_cache
from engine.run.runner import Runner
from engine.weight_format import Scheme


class Stopped(Exception):
    pass


def make_config(family: Family = "llama", window: int | None = None) -> ModelConfig:
    return ModelConfig(
        family=family,
        layers=2,
        hidden=32,
        heads=4,
        kv_heads=2,
        head_dim=8,
        intermediate=64,
        vocabulary=40,
        context=128,
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


def streams(config: ModelConfig, tensors: Mapping[str, Tensor], ids: list[int]) -> list[Tensor]:
    """The residual stream before every layer and after the last, by the engine's own layers."""
    model = Llama(config, tensors, "float32")
    runner = Runner(model, plain_cache(model, len(ids)))
    runner.cache.admit(0, ids, len(ids))
    batch = runner.layout.of_tokens("prefill", (0,), [ids])
    with torch.inference_mode():
        found = [tensors["embedding"][torch.tensor(ids)].clone()]
        for hidden in model.layer_outputs(batch.input_ids, batch.positions, batch.context):
            found.append(hidden.clone())
    return found


@pytest.mark.parametrize(
    ("family", "window"), [("llama", None), ("qwen2", None), ("qwen3", None), ("mistral", 5)]
)
def test_the_differentiable_layer_is_the_engines(family: Family, window: int | None) -> None:
    config = make_config(family, window)
    tensors = make_tensors(config)
    stream = streams(config, tensors, [(7 * place) % 40 for place in range(23)])
    for index in range(config.layers):
        got = Block.of(config).forward(layer_tensors(tensors, index), stream[index][None])
        torch.testing.assert_close(got[0], stream[index + 1], rtol=0, atol=2e-5)


def rounded_layer(layer: Mapping[str, Tensor], scheme: Scheme) -> dict[str, GridWeight]:
    return {
        name: round_to(
            stack := torch.cat([layer[part] for part in parts]), *fit_grid(stack, scheme), scheme
        )
        for name, parts in STACKS.items()
    }


def output_error(
    config: ModelConfig,
    layer: Mapping[str, Tensor],
    grids: Mapping[str, GridWeight],
    before: Tensor,
    after: Tensor,
) -> float:
    own = dict(layer)
    for name, grid in grids.items():
        heights = [layer[part].shape[0] for part in STACKS[name]]
        own |= dict(zip(STACKS[name], torch.split(grid.dequantise(), heights), strict=True))
    with torch.no_grad():
        return float((Block.of(config).forward(own, before[None])[0] - after).norm())


@pytest.mark.parametrize(
    "scheme", [Scheme(4, 16, False), Scheme(3, 32, True), Scheme(2, 16)], ids=str
)
def test_a_trained_layer_errs_less_than_a_rounded_one_on_text_it_has_not_seen(
    scheme: Scheme,
) -> None:
    config = make_config()
    tensors = make_tensors(config)
    source = torch.Generator().manual_seed(3)
    ids = torch.randint(0, 40, (128,), generator=source).tolist()
    before, after = streams(config, tensors, ids)[:2]
    layer = layer_tensors(tensors, 0)
    grids = train_layer(
        config, layer, LayerRecipe(scheme, scheme), before[:96], after[:96], window=96
    )
    assert {name: grid.scheme for name, grid in grids.items()} == dict.fromkeys(STACKS, scheme)
    for grid in grids.values():
        assert torch.equal(grid.scale, grid.scale.bfloat16().float())
    plain = rounded_layer(layer, scheme)
    # The unseen rows attend to the seen ones before them, as in one text.
    trained = output_error(config, layer, grids, before, after)
    assert trained < 0.85 * output_error(config, layer, plain, before, after)


def test_what_is_kept_full_is_not_trained_and_the_same_seeds_give_the_same_grids() -> None:
    config = make_config("qwen2")
    tensors = make_tensors(config)
    before, after = streams(config, tensors, list(range(40)))[:2]
    layer = layer_tensors(tensors, 0)
    recipe = LayerRecipe(None, Scheme(4, 32, False))
    with torch.inference_mode():
        first, second = (train_layer(config, layer, recipe, before, after) for _ in range(2))
    assert first.keys() == {"gate_up", "down"}
    assert all(torch.equal(first[name].codes, second[name].codes) for name in first)
    nothing = train_layer(config, layer, LayerRecipe(), before, after)
    assert nothing == {}


def test_training_can_be_stopped_and_says_when_it_left_the_numbers() -> None:
    config = make_config()
    tensors = make_tensors(config)
    before, after = streams(config, tensors, list(range(40)))[:2]
    layer = layer_tensors(tensors, 0)
    recipe = LayerRecipe(Scheme(4, 16), Scheme(4, 16))
    calls = 0

    def stop() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Stopped

    with pytest.raises(Stopped):
        train_layer(config, layer, recipe, before, after, check=stop)
    with pytest.raises(ArithmeticError, match="activations are too large"):
        train_layer(config, layer, recipe, before * torch.inf, after)
