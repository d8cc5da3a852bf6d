"""AWQ against rounding to nearest, on outputs that the tests compute from the inputs themselves."""

from __future__ import annotations

import pytest
import torch
from small_models import (
    SHAPES,
    rebuilt,
    scores,
    small_config,
    small_recipe,
    small_tensors,
    small_text,
)
from torch import Tensor

from engine.quant.awq import CUTS, STRENGTHS, round_cut, scale_at, search_scale
from engine.quant.quantise import quantise
from engine.quant.rtn import rtn
from engine.weight_format import ROW, Scheme

INT4 = Scheme(4, 16)


class Stopped(Exception):
    pass


def uneven_inputs(tokens: int, width: int, seed: int = 0) -> Tensor:
    """Every eleventh channel is twenty times the others."""
    rows = torch.randn(tokens, width, generator=torch.Generator().manual_seed(seed))
    rows[:, ::11] *= 20
    return rows


def weights(rows: int, columns: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def lost(weight: Tensor, kept: Tensor, inputs: Tensor) -> float:
    """‖X (W - Ŵ)ᵀ‖² in float64."""
    return float((inputs.double() @ (weight - kept).double().T).square().sum())


def searched(weight: Tensor, inputs: Tensor, scheme: Scheme) -> Tensor | None:
    return search_scale(weight, inputs.T @ inputs, inputs.abs().mean(0), scheme)


@pytest.mark.parametrize(
    "scheme", [INT4, Scheme(3, 16), Scheme(4, 16, symmetric=True), Scheme(8, ROW, symmetric=True)]
)
def test_a_searched_scale_loses_much_less_than_rounding_alone(scheme: Scheme) -> None:
    weight, inputs = weights(48, 64), uneven_inputs(300, 64)
    scale = searched(weight, inputs, scheme)
    assert scale is not None
    scaled = rtn(weight * scale, scheme).dequantise() / scale
    plain = rtn(weight, scheme).dequantise()
    assert lost(weight, scaled, inputs) < 0.6 * lost(weight, plain, inputs)


def test_the_search_finds_the_best_of_its_strengths() -> None:
    weight, inputs = weights(48, 64), uneven_inputs(300, 64)
    mean = inputs.abs().mean(0)
    found = searched(weight, inputs, INT4)

    def loss(strength: float) -> float:
        scale = scale_at(mean, strength)
        return lost(weight, rtn(weight * scale, INT4).dequantise() / scale, inputs)

    assert found is not None
    chosen = lost(weight, rtn(weight * found, INT4).dequantise() / found, inputs)
    # The candidates are judged before scale and zero are rounded to bfloat16: near, not equal.
    assert chosen <= 1.05 * min(loss(strength) for strength in STRENGTHS)


def test_weights_that_lie_on_their_grid_are_left_unscaled() -> None:
    codes = torch.randint(0, 16, (8, 32), generator=torch.Generator().manual_seed(2))
    codes[:, ::16], codes[:, 1::16] = 0, 15  # every group reaches both ends
    assert searched((codes - 8).float() * 0.25, uneven_inputs(40, 32), INT4) is None


def test_inputs_all_alike_ask_for_no_scale() -> None:
    assert torch.equal(scale_at(torch.full((4,), 7.0), 0.5), torch.ones(4))


def test_a_scale_is_a_power_of_the_mean_about_a_middle_of_one() -> None:
    scale = scale_at(torch.tensor([1.0, 16.0, 4.0]), 0.5)
    torch.testing.assert_close(scale, torch.tensor([0.5, 2.0, 1.0]))


def test_channels_without_inputs_have_a_finite_scale() -> None:
    scale = scale_at(torch.tensor([0.0, 1.0, 2.0]), 0.95)
    assert bool(torch.isfinite(scale).all()) and bool((scale > 0).all())
    assert torch.equal(scale_at(torch.zeros(3), 0.5), torch.ones(3))


def independent(inputs: Tensor, group: int) -> Tensor:
    """A Gram matrix of inputs whose groups have nothing to do with one another."""
    gram = inputs.T @ inputs
    apart = torch.arange(len(gram)) // group
    return torch.where(apart[:, None] == apart, gram, 0.0)


def form(error: Tensor, gram: Tensor) -> float:
    return float(((error.double() @ gram.double()) * error.double()).sum())


@pytest.mark.parametrize("scheme", [INT4, Scheme(2, 16), Scheme(3, 32, symmetric=True)])
def test_cut_ranges_never_lose_more_than_whole_ones(scheme: Scheme) -> None:
    weight = weights(40, 64)
    gram = independent(uneven_inputs(200, 64), scheme.group)
    cut = round_cut(weight, gram, scheme).dequantise()
    whole = rtn(weight, scheme).dequantise()
    assert form(weight - cut, gram) <= form(weight - whole, gram)
    assert form(weight - cut, gram) < form(weight - whole, gram) * (0.5 if scheme.bits == 2 else 1)


def test_an_outlier_that_meets_no_input_is_cut_off() -> None:
    symmetric = Scheme(4, 16, symmetric=True)
    weight = weights(1, 16)
    weight[0, 3] = 3 * float(weight.abs().max())
    inputs = torch.eye(16)
    inputs[3] = 0
    cut = round_cut(weight, inputs.T @ inputs, symmetric)
    assert float(cut.scale) < 0.65 * float(rtn(weight, symmetric).scale)


def test_weights_whose_every_end_matters_keep_their_whole_range() -> None:
    weight = torch.tensor([[0.0, 15.0] * 8])
    cut = round_cut(weight, torch.eye(16), INT4)
    assert torch.equal(cut.dequantise(), weight)
    assert CUTS[0] == 1.0


def test_searches_can_be_stopped() -> None:
    def stop() -> None:
        raise Stopped

    weight, inputs = weights(8, 32), uneven_inputs(20, 32)
    gram = inputs.T @ inputs
    with pytest.raises(Stopped):
        search_scale(weight, gram, inputs.abs().mean(0), INT4, check=stop)
    with pytest.raises(Stopped):
        round_cut(weight, gram, INT4, check=stop)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_by_awq_answers_more_like_itself_than_rounded_to_nearest(shape: str) -> None:
    config = SHAPES[shape]
    tensors, text = small_tensors(config), small_text(120, seed=9)
    truth = scores(config, tensors, text)

    def loss(method: str) -> float:
        recipe = small_recipe(config, bits=4, method=method, embedding=16)
        made = quantise(tensors, config, recipe, calibration_ids=small_text(240))
        return float((scores(config, rebuilt(config, tensors, made), text) - truth).square().mean())

    assert loss("awq") < 0.8 * loss("rtn")


def test_o_is_left_unscaled_where_heads_share_values_and_scaled_where_they_do_not() -> None:
    for kv_heads, moved in ((2, False), (4, True)):
        config = small_config(kv_heads=kv_heads)
        tensors = small_tensors(config)
        tensors["layers.0.v"][::5] *= 15  # some value channels are large
        recipe = small_recipe(config, bits=8, group=16, method="awq")
        made = quantise(tensors, config, recipe, calibration_ids=small_text(240))
        kept = made.grids["layers.0.o"].dequantise()
        near = (kept - tensors["layers.0.o"]).abs().max() < 0.05
        assert bool(near) != moved
