"""SmoothQuant against rounding both sides as they are, on products that the tests compute."""

from __future__ import annotations

import pytest
import torch
from small_models import rebuilt, scores, small_config, small_recipe, small_tensors, small_text
from torch import Tensor

from engine.quant.folded import Given, Watched
from engine.quant.quantise import quantise
from engine.quant.rtn import rtn
from engine.quant.smoothquant import both_sides_error, round_tokens, scale_at
from engine.weight_format import ROW, Scheme

W8A8 = Scheme(8, ROW, symmetric=True, activations=8)


def uneven(tokens: int, width: int) -> Tensor:
    """Two channels are a hundred times the others."""
    rows = torch.randn(tokens, width, generator=torch.Generator().manual_seed(0))
    rows[:, [3, 17]] *= 100
    return rows


def weights(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(1))


def naive_tokens(rows: Tensor) -> Tensor:
    """int8 a token at a time."""
    found = []
    for row in rows.tolist():
        step = max(abs(number) for number in row) / 127
        found.append([round(number / step) * step for number in row])
    return torch.tensor(found)


def test_each_token_is_rounded_on_a_grid_of_its_own() -> None:
    rows = uneven(5, 20)
    torch.testing.assert_close(round_tokens(rows, 8), naive_tokens(rows), rtol=1e-6, atol=1e-6)


def test_sixteen_bit_activations_and_silent_tokens_are_left_alone() -> None:
    rows = uneven(3, 20)
    assert torch.equal(round_tokens(rows, 16), rows)
    assert torch.equal(round_tokens(torch.zeros(2, 4), 8), torch.zeros(2, 4))


def test_half_strength_is_the_root_of_the_inputs_peak_over_the_weights() -> None:
    weight = torch.tensor([[1.0, -2.0], [0.5, 8.0]])  # largest in its columns: 1, 8
    scale = scale_at(torch.tensor([16.0, 2.0]), weight, 0.5)  # sqrt 16, sqrt 1/4: 4 and 1/2
    assert float(scale[0] / scale[1]) == pytest.approx(8.0)
    assert float(scale.log().sum()) == pytest.approx(0.0, abs=1e-6)


def test_channels_without_inputs_or_weights_have_a_finite_scale() -> None:
    weight = torch.tensor([[1.0, 0.0, 3.0]])
    for peak in (torch.tensor([0.0, 2.0, 1.0]), torch.zeros(3)):
        scale = scale_at(peak, weight, 0.5)
        assert bool((torch.isfinite(scale) & (scale > 0)).all())


def test_large_channels_cost_far_less_once_they_are_smoothed() -> None:
    inputs, weight = uneven(200, 64), weights(48, 64)
    given = Given(weight, Watched.of(inputs), W8A8, "w")
    truth = inputs @ weight.T
    scale = scale_at(inputs.abs().amax(0), weight, 0.5)
    plain, smooth = both_sides_error(given, None, truth), both_sides_error(given, scale, truth)
    # What the two say is what the product shows, on small channels that the large ones drown.
    made = naive_tokens(inputs) @ rtn(weight, W8A8).dequantise().T
    expected = float((truth - made).norm() / truth.norm())
    assert plain == pytest.approx(expected, rel=1e-3)
    assert smooth < 0.5 * plain


def test_a_smoothed_model_is_the_same_model() -> None:
    """Weights alone at 8 bits differ little: what is left of the difference is no wrong fold."""
    config = small_config(kv_heads=4)
    tensors, text = small_tensors(config), small_text(60, seed=8)
    recipe = small_recipe(config, bits=8, method="smoothquant", embedding=16)
    made = quantise(tensors, config, recipe, calibration_ids=small_text(200))
    truth = scores(config, tensors, text)
    found = scores(config, rebuilt(config, tensors, made), text)
    assert made.tensors.keys() >= {"layers.0.attention_norm", "layers.2.mlp_norm"}
    assert float((found - truth).norm() / truth.norm()) < 0.3
    assert {grid.scheme for grid in made.grids.values()} == {W8A8}


def test_errors_count_the_rounding_of_the_inputs_too() -> None:
    config = small_config()
    tensors, text = small_tensors(config), small_text(200)
    made = quantise(
        tensors,
        config,
        small_recipe(config, bits=8, method="smoothquant"),
        calibration_ids=text,
    )
    weights_only = quantise(
        tensors, config, small_recipe(config, bits=8, group=-1, method="awq"), calibration_ids=text
    )
    both = {(error.layer, error.name): error.error for error in made.report.errors}
    for error in weights_only.report.errors:
        assert both[error.layer, error.name] > error.error
