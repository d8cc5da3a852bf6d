"""Folds leave the function of a model as it was: the engine's own scores before and after."""

from __future__ import annotations

import pytest
import torch
from small_models import SHAPES, scores, small_config, small_tensors, small_text

from engine.quant.fold import Seam, fold, seams
from engine.quant.walk import layer_tensors
from engine.quant.weights import STACKS

ALL = tuple(STACKS)
TEXT = small_text(40)


def random_scale(width: int, seed: int) -> torch.Tensor:
    """From a thirtieth to thirty."""
    return torch.exp(
        3.4 * (2 * torch.rand(width, generator=torch.Generator().manual_seed(seed)) - 1)
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_every_seam_together_leaves_the_scores_as_they_were(shape: str) -> None:
    config = SHAPES[shape]
    tensors = small_tensors(config)
    before = scores(config, tensors, TEXT)
    folded = dict(tensors)
    for index in range(config.layers):
        layer = layer_tensors(tensors, index)
        for number, seam in enumerate(seams(config, ALL)):
            width = layer[seam.after[0]].shape[1]
            layer = fold(layer, seam, random_scale(width, 10 * index + number))
        folded |= {f"layers.{index}.{name}": tensor for name, tensor in layer.items()}
    assert not torch.equal(folded["layers.1.up"], tensors["layers.1.up"])
    torch.testing.assert_close(scores(config, folded, TEXT), before, rtol=0, atol=1e-4)


@pytest.mark.parametrize("shape", ["grouped heads", "ungrouped, biases"])
def test_a_scale_not_taken_from_what_is_before_changes_the_scores(shape: str) -> None:
    """The test above can fail: each half of a fold alone is another model."""
    config = SHAPES[shape]
    tensors = small_tensors(config)
    before = scores(config, tensors, TEXT)
    for seam in seams(config, ALL):
        layer = layer_tensors(tensors, 1)
        scale = random_scale(layer[seam.after[0]].shape[1], 1)
        half = {name: fold(layer, seam, scale)[name] for name in seam.after}
        changed = {**tensors, **{f"layers.1.{name}": tensor for name, tensor in half.items()}}
        assert (scores(config, changed, TEXT) - before).abs().max() > 1e-2


def test_only_heads_with_keys_and_values_of_their_own_scale_o() -> None:
    grouped = seams(small_config(), ALL)
    alone = seams(small_config(kv_heads=4), ALL)
    assert [seam.matrix for seam in grouped] == ["qkv", "gate_up", "down"]
    assert [seam.matrix for seam in alone] == ["qkv", "o", "gate_up", "down"]


def test_biases_of_v_are_divided_with_its_rows() -> None:
    with_bias = small_config(family="qwen2", qkv_bias=True, kv_heads=4)
    found = {seam.pair: seam.before for seam in seams(with_bias, ALL)}
    assert found["value"] == ("v", "v_bias")


def test_matrices_kept_full_are_never_folded_into() -> None:
    config = small_config(kv_heads=4)
    for matrices in (
        {"down"},
        {"o"},
        {"qkv"},
        {"gate_up"},
        {"qkv", "o"},
        {"gate_up", "down"},
        set(),
    ):
        allowed = {part for name in matrices for part in STACKS[name]}
        for seam in seams(config, matrices):
            touched = {*seam.before, *seam.after} - {"attention_norm", "mlp_norm", "v_bias"}
            assert touched <= allowed
    assert [seam.pair for seam in seams(config, {"gate_up", "down"})] == ["mlp_norm", "inner"]
    assert not seams(config, {"o", "down"})


def test_a_fold_multiplies_columns_and_divides_what_feeds_them() -> None:
    layer = {"norm": torch.tensor([6.0, 8.0]), "w": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    seam = Seam("attention_norm", "qkv", ("norm",), ("w",))
    folded = fold(layer, seam, torch.tensor([2.0, 4.0]))
    assert folded["norm"].tolist() == [3.0, 2.0]
    assert folded["w"].tolist() == [[2.0, 8.0], [6.0, 16.0]]
    assert layer["norm"].tolist() == [6.0, 8.0]


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_that_cannot_be_undone_are_refused(bad: float) -> None:
    config = small_config()
    layer = layer_tensors(small_tensors(config), 0)
    scale = torch.ones(config.hidden)
    scale[5] = bad
    with pytest.raises(ValueError, match="positive and finite"):
        fold(layer, seams(config, ALL)[0], scale)


def test_a_scale_of_another_width_is_refused() -> None:
    config = small_config()
    layer = layer_tensors(small_tensors(config), 0)
    with pytest.raises(ValueError, match=r"\[3\].*64 channels"):
        fold(layer, seams(config, ALL)[0], torch.ones(3))
