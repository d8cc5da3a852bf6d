"""The driver: every method on small models, and what it tells of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
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

from engine.quant.quantise import HISTOGRAM_STEPS, METHODS, histogram, quantise
from engine.quant.rtn import rtn
from engine.quant.walk import Walk, layer_tensors
from engine.quantised import Histogram, LayerError, Notice
from engine.recipe import Matrix, matrices
from engine.weight_format import Scheme

TEXT = small_text(200)


class Stopped(Exception):
    pass


@dataclass
class Desk:
    """Hears what is told, and stops after `patience` checks."""

    patience: int | None = None
    checks: int = 0
    told: list[tuple[LayerError, Histogram | None, int, int]] = field(default_factory=list)

    def pressed(
        self, error: LayerError, histogram: Histogram | None, done: int, total: int
    ) -> None:
        self.told.append((error, histogram, done, total))

    def check(self) -> None:
        self.checks += 1
        if self.patience is not None and self.checks > self.patience:
            raise Stopped


@pytest.mark.parametrize("method", METHODS)
def test_every_matrix_of_the_layers_is_told_once_in_the_order_of_the_network(method: str) -> None:
    config, desk = small_config(), Desk()
    recipe = small_recipe(config, bits=4, method=method)
    made = quantise(
        small_tensors(config),
        config,
        recipe,
        calibration_ids=TEXT,
        on_pressed=desk.pressed,
        check=desk.check,
    )
    names = ("qkv", "o", "gate_up", "down")
    assert [(error.layer, error.name) for error, _, _, _ in desk.told] == [
        (layer, name) for layer in range(3) for name in names
    ]
    assert [(done, total) for _, _, done, total in desk.told] == [(i + 1, 12) for i in range(12)]
    assert made.report.errors == tuple(error for error, _, _, _ in desk.told)
    drawn = [picture for _, picture, _, _ in desk.told if picture is not None]
    assert [(picture.layer, picture.name) for picture in drawn] == [(i, "down") for i in range(3)]
    assert made.report.histogram in drawn
    assert made.grids.keys() == {"embedding"} | {
        f"layers.{layer}.{name}" for layer in range(3) for name in names
    }


@pytest.mark.parametrize(
    ("method", "shape"),
    [(method, shape) for method in METHODS for shape in SHAPES if method != "qat"]
    + [("qat", "ungrouped, biases"), ("qat", "q/k norm, heads wider than hidden")],
)
def test_every_method_takes_every_shape_of_model(method: str, shape: str) -> None:
    config = SHAPES[shape]
    tensors = small_tensors(config)
    recipe = small_recipe(config, bits=8, method=method)
    made = quantise(tensors, config, recipe, calibration_ids=TEXT)
    text = small_text(50, seed=4)
    truth = scores(config, tensors, text)
    found = scores(config, rebuilt(config, tensors, made), text)
    # These weights are wild, and rounding shows: 0.14 at most, where a wrong fold passes 0.5.
    assert float((found - truth).norm() / truth.norm()) < 0.3
    expected = {m.name if m.layer is None else f"layers.{m.layer}.{m.name}": m for m in
                matrices(recipe, config)}  # fmt: skip
    assert made.grids.keys() == expected.keys()
    for name, grid in made.grids.items():
        matrix = expected[name]
        assert grid.shape == (matrix.rows, matrix.columns) and grid.scheme == matrix.scheme
    assert all(tensor.shape == tensors[name].shape for name, tensor in made.tensors.items())


def test_rounding_to_nearest_is_each_stacked_matrix_rounded() -> None:
    config = small_config(tied_head=False)
    tensors = small_tensors(config)
    made = quantise(tensors, config, small_recipe(config, bits=3))
    scheme = Scheme(3, 16)
    stacked = torch.cat([tensors[f"layers.1.{part}"] for part in ("q", "k", "v")])
    assert torch.equal(made.grids["layers.1.qkv"].codes, rtn(stacked, scheme).codes)
    for name in ("embedding", "head"):
        eight = rtn(tensors[name], Scheme(8, -1, symmetric=True))
        assert torch.equal(made.grids[name].codes, eight.codes)
    error = next(e for e in made.report.errors if (e.layer, e.name) == (1, "qkv"))
    kept = rtn(stacked, scheme).dequantise().double()
    expected = float((stacked.double() - kept).norm() / stacked.double().norm())
    assert error.error == pytest.approx(expected, rel=1e-5)
    assert made.report.calibration_tokens == 0 and made.report.notices == ()
    assert (made.report.changed_layers, made.report.layers) == (0, 3)


def test_errors_of_methods_that_watch_are_those_of_the_outputs() -> None:
    config = small_config()
    tensors = small_tensors(config)
    made = quantise(
        tensors, config, small_recipe(config, bits=4, method="awq"), calibration_ids=TEXT
    )
    layer = layer_tensors(tensors, 0)
    rows = Walk(tensors["embedding"], config, TEXT).inputs(layer)["gate_up"].double()
    # The fold's scale, from the norm that took it up: the input is divided by it.
    scale = (tensors["layers.0.mlp_norm"] / made.tensors["layers.0.mlp_norm"]).double()
    truth = rows @ torch.cat((layer["gate"], layer["up"])).double().T
    found = (rows / scale) @ made.grids["layers.0.gate_up"].dequantise().double().T
    # Rows of up were rescaled for down: compare the gate's half, which no other fold touches.
    half = config.intermediate
    gate = float((truth - found)[:, :half].norm() / truth[:, :half].norm())
    error = next(e for e in made.report.errors if (e.layer, e.name) == (0, "gate_up"))
    assert error.error == pytest.approx(gate, rel=0.3)


def test_kinds_and_edges_have_their_own_widths_and_full_ones_are_absent() -> None:
    config = small_config(layers=4)
    recipe = small_recipe(
        config, bits=4, attention=16, mlp=3, edges=8, embedding=16, edge_layers=1, method="awq"
    )
    made = quantise(small_tensors(config), config, recipe, calibration_ids=TEXT)
    widths = {name: grid.scheme.bits for name, grid in made.grids.items()}
    edge = {f"layers.{i}.{name}": 8 for i in (0, 3) for name in ("qkv", "o", "gate_up", "down")}
    middle = {f"layers.{i}.{name}": 3 for i in (1, 2) for name in ("gate_up", "down")}
    assert widths == edge | middle
    untouched = {name for name in made.tensors if name.startswith(("layers.1", "layers.2"))}
    assert untouched <= {"layers.1.mlp_norm", "layers.2.mlp_norm"}
    assert made.report.layers == 4


def test_a_recipe_of_the_embedding_alone_walks_no_layer() -> None:
    config, desk = small_config(), Desk()
    recipe = small_recipe(config, bits=0, embedding=4, method="awq")
    made = quantise(
        small_tensors(config), config, recipe, calibration_ids=TEXT, on_pressed=desk.pressed
    )
    assert made.grids.keys() == {"embedding"} and not desk.told
    assert made.report.layers == 0 and made.report.histogram is None


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("patience", [0, 1, 5, 20])
def test_a_job_stops_where_the_player_stops_it(method: str, patience: int) -> None:
    config, desk = small_config(), Desk(patience)
    recipe = small_recipe(config, bits=4, method=method)
    if method == "rtn" and patience == 20:
        pytest.skip("three layers are rounded in fewer checks")
    with pytest.raises(Stopped):
        quantise(
            small_tensors(config),
            config,
            recipe,
            calibration_ids=TEXT,
            on_pressed=desk.pressed,
            check=desk.check,
        )
    assert desk.checks == patience + 1


@pytest.mark.parametrize("method", [name for name in METHODS if name != "rtn"])
def test_long_layers_ask_again_and_again(method: str) -> None:
    """Between two matrices told there are several checks, so that large ones can be left."""
    config, desk = small_config(), Desk()
    quantise(
        small_tensors(config),
        config,
        small_recipe(config, bits=4, method=method),
        calibration_ids=TEXT,
        check=desk.check,
    )
    assert desk.checks > 2 * 12


def test_text_shorter_than_the_widest_matrix_is_noticed() -> None:
    config = small_config()  # down has 96 inputs
    tensors = small_tensors(config)
    recipe = small_recipe(config, bits=4, method="gptq")
    short = quantise(tensors, config, recipe, calibration_ids=TEXT[:95])
    enough = quantise(tensors, config, recipe, calibration_ids=TEXT[:96])
    assert short.report.notices == (Notice("calibration_short", {"tokens": "95", "width": "96"}),)
    assert enough.report.notices == ()
    assert (short.report.calibration_tokens, enough.report.calibration_tokens) == (95, 96)


def test_only_matrices_that_are_quantised_ask_for_their_width_of_text() -> None:
    config = small_config()
    recipe = small_recipe(config, bits=4, mlp=16, method="gptq")
    made = quantise(small_tensors(config), config, recipe, calibration_ids=TEXT[:64])
    assert made.report.notices == ()


def on_their_grids(tensors: dict[str, Tensor], scheme: Scheme) -> dict[str, Tensor]:
    """Tensors whose layers lie on grids already, each group reaching both ends of its own."""
    found = dict(tensors)
    for name, tensor in tensors.items():
        if name.startswith("layers.") and tensor.dim() == 2:
            codes = rtn(tensor, scheme).codes.clone()
            codes[:, :: scheme.group], codes[:, 1 :: scheme.group] = 0, 15
            found[name] = (codes.float() - 8) / 64
    return found


def test_a_method_with_nothing_to_mend_says_that_it_changed_little() -> None:
    config, scheme = small_config(), Scheme(4, 16)
    tensors = on_their_grids(small_tensors(config), scheme)
    recipe = small_recipe(config, bits=4, method="awq")
    made = quantise(tensors, config, recipe, calibration_ids=TEXT)
    assert made.report.changed_layers == 0 and not made.tensors
    assert made.report.notices == (
        Notice("method_changed_little", {"changed": "0", "layers": "3"}),
    )
    busy = quantise(small_tensors(config), config, recipe, calibration_ids=TEXT)
    assert busy.report.changed_layers == 3 and busy.report.notices == ()


def test_a_histogram_counts_every_weight_before_and_after() -> None:
    before = torch.randn(24, 32, generator=torch.Generator().manual_seed(0))
    after = rtn(before, Scheme(2, 16)).dequantise()
    found = histogram(Matrix("down", 7, 24, 32, Scheme(2, 16)), before, after)
    assert (found.layer, found.name) == (7, "down")
    for counts, weight in ((found.before, before), (found.after, after)):
        expected, _ = np.histogram(weight.numpy(), HISTOGRAM_STEPS, (found.low, found.high))
        assert sum(counts) == weight.numel()
        # A weight on the edge of a step may fall to either side of it in float32.
        assert np.abs(np.array(counts) - expected).sum() <= 4


def test_weights_all_alike_are_drawn_too() -> None:
    flat = torch.full((4, 16), 0.5)
    found = histogram(Matrix("down", 0, 4, 16, Scheme(4, 16)), flat, flat)
    assert found.low < found.high and sum(found.before) == sum(found.after) == 64


def test_seconds_are_the_clock_s() -> None:
    config, ticks = small_config(), iter((10.0, 12.5))
    made = quantise(
        small_tensors(config), config, small_recipe(config, bits=8), clock=lambda: next(ticks)
    )
    assert made.report.seconds == 2.5 and not made.report.cached


@pytest.mark.parametrize("method", [name for name in METHODS if name != "qat"])
def test_quantising_twice_gives_the_same_codes(method: str) -> None:
    config = small_config()
    recipe = small_recipe(config, bits=3, method=method)
    one, two = (
        quantise(small_tensors(config), config, recipe, calibration_ids=TEXT) for _ in range(2)
    )
    for name, grid in one.grids.items():
        assert torch.equal(grid.codes, two.grids[name].codes)
        assert torch.equal(grid.scale, two.grids[name].scale)


def test_the_models_own_tensors_are_left_as_they_are() -> None:
    config = small_config()
    tensors = small_tensors(config)
    for method in ("rtn", "gptq", "awq", "smoothquant"):
        recipe = small_recipe(config, bits=4, method=method)
        quantise(tensors, config, recipe, calibration_ids=TEXT)
    for name, tensor in small_tensors(config).items():
        assert torch.equal(tensors[name], tensor)


def test_bad_input_is_refused_in_words() -> None:
    config = small_config()
    tensors = small_tensors(config)
    with pytest.raises(ValueError, match="awq looks at activations.*at least 1"):
        quantise(tensors, config, small_recipe(config, bits=4, method="awq"))
    with pytest.raises(ValueError, match="'magic'; legal: rtn, gptq, awq"):
        quantise(tensors, config, small_recipe(config, bits=4, method="magic"))
    with pytest.raises(ValueError, match="3 layers for a model of 2"):
        quantise(tensors, small_config(layers=2), small_recipe(config, bits=4))
    with pytest.raises(ValueError, match="groups of 17.*nearest: 16"):
        quantise(tensors, config, small_recipe(config, bits=4, group=17))
    tensors["layers.2.gate"][3, 5] = float("nan")
    with pytest.raises(ValueError, match=r"layers\.2\.gate_up holds nan in row 3, column 5"):
        quantise(tensors, config, small_recipe(config, bits=4))
