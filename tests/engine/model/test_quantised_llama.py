"""A quantised network against a float32 one built of the values that its codes stand for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from rounded_weights import meant_tensors, rounded
from torch import Tensor

from engine.config import WeightsConfig
from engine.fit import weight_bytes
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.quant.grid import GridWeight
from engine.quant.weights import QuantisedWeights
from engine.recipe import recipe_of
from engine.run.scoring import logits
from engine.weight_format import FUSED_FIRST, NATIVE
from kernels.linear.crossover import CrossoverLinear
from kernels.linear.dispatch import reads_rows
from kernels.native import FEW_ROWS

_SIZES = {"float32": 4, "bfloat16": 2}
TEXT = [(7 * place + 3) % 320 for place in range(40)]

FORMS = ("packed", NATIVE, FUSED_FIRST)
"""Of a machine whose fastest products are the compiled ones."""

WIDTHS: dict[str, WeightsConfig] = {
    "8": WeightsConfig(8),
    "8 in groups": WeightsConfig(8, group=32),
    "4": WeightsConfig(4),
    "4 symmetric, embedding too": WeightsConfig(4, symmetric="on", embedding=4),
    "3": WeightsConfig(3),
    "2": WeightsConfig(2),
    "mixed": WeightsConfig(4, attention=8, edges=16),
    "mlp alone": WeightsConfig(mlp=4),
}
SHAPES: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied with biases": {"tied_head": False, "qkv_bias": True},
    "norms in the heads": {"qk_norm": True, "head_dim": 32},
}


def config_of(**changes: Any) -> ModelConfig:
    plain = ModelConfig("llama", 3, 64, 4, 2, 16, 128, 320, 512, 1e4, 1e-5, True)
    return msgspec.structs.replace(plain, **changes)


def tensors_of(config: ModelConfig) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator) / shape[-1] ** 0.5

    hidden, inner = config.hidden, config.intermediate
    found = {"embedding": random(config.vocabulary, hidden), "final_norm": torch.ones(hidden)}
    if not config.tied_head:
        found["head"] = random(config.vocabulary, hidden)
    shapes = {
        "q": (config.query_width, hidden),
        "k": (config.kv_width, hidden),
        "v": (config.kv_width, hidden),
        "o": (hidden, config.query_width),
        "gate": (inner, hidden),
        "up": (inner, hidden),
        "down": (hidden, inner),
    }
    for layer in range(config.layers):
        parts = {name: random(*shape) for name, shape in shapes.items()}
        parts |= {name: torch.ones(hidden) for name in ("attention_norm", "mlp_norm")}
        if config.qkv_bias:
            parts |= {f"{name}_bias": random(shapes[name][0]) for name in ("q", "k", "v")}
        if config.qk_norm:
            parts |= {name: torch.ones(config.head_dim) for name in ("q_norm", "k_norm")}
        found |= {f"layers.{layer}.{name}": tensor for name, tensor in parts.items()}
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("precision", "crossover"), [("float32", 0), ("bfloat16", 16)])
def test_it_scores_as_the_values_of_its_codes_do(
    width: str, shape: str, precision: str, crossover: int
) -> None:
    config = config_of(**SHAPES[shape])
    tensors = tensors_of(config)
    weights = rounded(config, tensors, WIDTHS[width])
    model = Llama(config, tensors, precision, quantised=weights, crossover=crossover)
    truth = logits(Llama(config, meant_tensors(config, tensors, weights), "float32"), TEXT)
    found = torch.cat([logits(model, TEXT), logits(model, TEXT[:3])])
    truth = torch.cat([truth, truth[:3]])
    # int4 products round activations to bfloat16 in every precision
    near = 1e-4 if precision == "float32" and "4" not in model.kernel_path["linear"] else 0.04
    assert (found - truth).abs().max() <= near * truth.abs().max()
    assert model.weight_bytes == weight_bytes(
        config,
        _SIZES[precision],
        "onednn-packed" in model.kernel_path["head"],
        recipe_of(WIDTHS[width], config),
        model.low_bit_forms,
    )


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", ["8", "4", "mixed"])
@pytest.mark.parametrize(("precision", "crossover"), [("float32", 0), ("bfloat16", 5)])
def test_layers_whose_halves_are_joined_score_so_too(
    width: str, shape: str, precision: str, crossover: int
) -> None:
    """Of as many rows as they take, of one, and of more. Norms in its heads leave a layer its
    first half as it was; full width at the edges leaves the first layer and the last, where dense
    weights are not multiplied in C as well."""
    config = config_of(**{"head_dim": 32} | SHAPES[shape])
    tensors = tensors_of(config)
    weights = rounded(config, tensors, WIDTHS[width])
    model = Llama(config, tensors, precision, quantised=weights, crossover=crossover, forms=FORMS)
    rows = crossover or FEW_ROWS
    pressed = model.layers[1:-1] if width == "mixed" else model.layers
    joined = model.layers if reads_rows(model.dtype) else pressed
    limits = {layer.few for layer in joined}
    assert limits == ({rows, FEW_ROWS} if len(joined) > len(pressed) else {rows})
    said = " or ".join(map(str, sorted(limits)))
    assert f"layers joined to {said} rows" in model.kernel_path["linear"]
    for layer in model.layers:
        assert (layer.after is not None) == (layer in joined)
        assert (layer.before is not None) == (layer in joined and not config.qk_norm)
    assert all(layer.few == rows for layer in pressed)
    full = Llama(config, meant_tensors(config, tensors, weights), "float32")
    for count in (1, rows, rows + 1):
        truth, found = logits(full, TEXT[:count]), logits(model, TEXT[:count])
        near = 1e-4 if precision == "float32" else 0.04
        assert (found - truth).abs().max() <= near * truth.abs().max()


def test_smoothquant_rounds_activations_whatever_the_crossover() -> None:
    config = config_of()
    tensors = tensors_of(config)
    build = WeightsConfig(8, method="smoothquant", embedding=16)
    weights = rounded(config, tensors, build)
    never = Llama(config, tensors, "float32", quantised=weights)
    truth = logits(Llama(config, meant_tensors(config, tensors, weights), "float32"), TEXT)
    found = logits(never.with_crossover(1), TEXT)
    assert torch.equal(found, logits(never, TEXT))
    error = (found - truth).abs().max() / truth.abs().max()
    assert 1e-4 < error < 0.1  # activations are quantised, and not badly
    assert "dense" not in never.with_crossover(1).kernel_path["linear"]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_tied_and_quantised_embedding_is_held_once(precision: str) -> None:
    config = config_of()
    tensors = tensors_of(config)
    weights = rounded(config, tensors, WeightsConfig(4))
    model = Llama(config, tensors, precision, quantised=weights, crossover=8)
    assert isinstance(model.head, CrossoverLinear) and model.head.low is model.embedding
    held = sum(matrix.nbytes for matrix in model.linears) + model.embedding.nbytes
    norms = (2 * config.layers + 1) * (config.hidden + 1) * 4
    assert model.weight_bytes == held + norms


def test_another_crossover_shares_every_weight_and_leaves_the_first_as_it_was() -> None:
    config = config_of()
    tensors = tensors_of(config)
    model = Llama(config, tensors, "bfloat16", quantised=rounded(config, tensors, WeightsConfig(4)))
    twin = model.with_crossover(16)
    for mine, theirs in zip(model.linears, twin.linears, strict=True):
        assert isinstance(theirs, CrossoverLinear) and theirs.low is mine
        assert theirs.crossover == 16
    assert twin.weight_bytes == model.weight_bytes
    assert "dense" not in str(model.kernel_path)
    assert twin.kernel_path["linear"].endswith("bfloat16, dense above 16 rows")
    again = twin.with_crossover(0)
    assert again.linears == model.linears and again.kernel_path == model.kernel_path


def test_dense_weights_are_left_alone_by_a_crossover() -> None:
    config = config_of()
    model = Llama(config, tensors_of(config), "bfloat16", crossover=4)
    assert not any(isinstance(matrix, CrossoverLinear) for matrix in model.linears)
    assert "dense" not in str(model.kernel_path)


def test_every_form_in_use_is_named_once() -> None:
    config = config_of()
    tensors = tensors_of(config)
    build = WeightsConfig(4, attention=3, edges=8)
    path = Llama(config, tensors, "bfloat16", quantised=rounded(config, tensors, build)).kernel_path
    forms = path["linear"].removesuffix(" bfloat16").split(" + ")
    assert len(set(forms)) == len(forms) == 3
    assert [name.split()[0] for name in forms] == ["int4-group", "int8-row", "packed-3bit"]
    assert "int8-row" in path["head"] and path["head"].endswith("sharpened")


def test_a_machine_without_kernels_keeps_codes_packed() -> None:
    config = config_of()
    tensors = tensors_of(config)
    weights = rounded(config, tensors, WeightsConfig(4))
    model = Llama(config, tensors, "bfloat16", quantised=weights, forms=("packed",))
    assert model.kernel_path["linear"].startswith("packed-4bit")
    recipe = recipe_of(WeightsConfig(4), config)
    assert model.weight_bytes == weight_bytes(config, 2, True, recipe, ("packed",))


def test_tensors_that_a_fold_changed_take_the_place_of_the_model_s() -> None:
    """A norm doubled and the matrix behind it halved is the same network."""
    config = config_of()
    tensors = tensors_of(config)
    half = {f"layers.0.{name}": tensors[f"layers.0.{name}"] / 2 for name in ("gate", "up")}
    double = {"layers.0.mlp_norm": tensors["layers.0.mlp_norm"] * 2}
    plain = rounded(config, tensors, WeightsConfig(8))
    folded = rounded(config, tensors | half, WeightsConfig(8))
    folded = QuantisedWeights(folded.grids, folded.report, double)
    one, other = (
        logits(Llama(config, tensors, "float32", quantised=weights), TEXT)
        for weights in (plain, folded)
    )
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_quantised_head_has_its_nearest_scores_computed_again() -> None:
    """Two rows of the head that bfloat16's rounding ties are told apart, tied head or not."""
    for tied in (True, False):
        config = config_of(tied_head=tied)
        tensors = tensors_of(config)
        weights = rounded(config, tensors, WeightsConfig(4, embedding=8))
        model = Llama(config, tensors, "bfloat16", quantised=weights)
        assert model.kernel_path["head"].endswith("sharpened")
        hidden = torch.randn(4, config.hidden, generator=torch.Generator().manual_seed(0))
        with torch.inference_mode():
            scores = model.logits(hidden)
            x = model.final_norm(hidden).float()
        grid = weights.grids["embedding" if tied else "head"]
        best = scores.max(dim=-1)
        rows = grid.dequantise()[best.indices].to(torch.bfloat16).float()
        torch.testing.assert_close(best.values, (x * rows).sum(dim=-1), rtol=1e-5, atol=1e-5)


def test_codes_of_another_shape_are_refused() -> None:
    config = config_of()
    tensors = tensors_of(config)
    weights = rounded(config, tensors, WeightsConfig(4))
    grid = weights.grids["layers.1.o"]
    short = GridWeight(grid.codes[:32], grid.scale[:32], grid.zero[:32], grid.scheme)  # type: ignore[index]
    broken = QuantisedWeights({**weights.grids, "layers.1.o": short}, weights.report)
    with pytest.raises(ValueError, match=r"layers.1.o is \[64, 64\] and its codes are \[32, 64\]"):
        Llama(config, tensors, "bfloat16", quantised=broken)
