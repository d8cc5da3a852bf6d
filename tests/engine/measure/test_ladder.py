"""Rungs of the ladder: against the values that codes stand for, worked out by the test itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rounded_weights import meant_tensors, rounded

import engine.measure.comparison as comparison_module
import engine.measure.ladder as ladder_module
from engine.config import WeightsConfig
from engine.measure.comparison import compare_with, read_text
from engine.measure.ladder import Stairs, measure_rung, rung_name, rung_recipe
from engine.measure.reporter import Reporter
from engine.messages import Event, Progress
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.serve.failures import Aborted

Configs = Callable[..., ModelConfig]
Tensors = Callable[[ModelConfig], dict[str, torch.Tensor]]

TEXT = [(37 * place + place // 7) % 256 for place in range(400)]


@pytest.fixture(autouse=True)
def _small_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison_module, "FEWEST_SCORED", 300)
    monkeypatch.setattr(comparison_module, "WINDOW", 101)


def desk(events: list[Event], aborted: Callable[[], bool] = lambda: False) -> Reporter:
    return Reporter(7, events.append, aborted, lambda: 0)


def test_a_rung_is_the_model_of_the_values_its_codes_stand_for(
    tiny_config: Configs, tiny_tensors: Tensors
) -> None:
    config = tiny_config()
    tensors = tiny_tensors(config)
    reference = Llama(config, tensors, "float32")
    text = read_text(reference, TEXT)
    kls = []
    for bits in (8, 4, 3, 2):
        rung = measure_rung(bits, reference, text, tensors, "float32", Stairs(desk([]), 0, 1, bits))
        weights = rounded(config, tensors, WeightsConfig(bits=bits))
        judge = Llama(config, meant_tensors(config, tensors, weights), "float32")
        truth = compare_with(reference, text, judge)
        assert rung.bits == bits
        assert rung.kl == pytest.approx(truth.kl, rel=1e-3)
        assert rung.top1 == pytest.approx(truth.top1, abs=0.01)
        kls.append(rung.kl)
    assert kls == sorted(kls) and kls[0] > 0


def test_the_climb_is_told_and_ends_at_its_rung(
    tiny_config: Configs, tiny_tensors: Tensors
) -> None:
    config = tiny_config()
    tensors = tiny_tensors(config)
    reference = Llama(config, tensors, "float32")
    events: list[Event] = []
    stairs = Stairs(desk(events), 1, 4, 3)
    measure_rung(3, reference, read_text(reference, TEXT), tensors, "bfloat16", stairs)
    told = [event for event in events if isinstance(event, Progress)]
    done = [event.done for event in told]
    assert {(event.phase, event.total, event.detail) for event in told} == {("ladder", 400, "3")}
    assert done == sorted(done) and 100 <= done[0] < 150 < done[-1] == 200


def test_it_stops_where_the_player_does(tiny_config: Configs, tiny_tensors: Tensors) -> None:
    config = tiny_config()
    tensors = tiny_tensors(config)
    reference = Llama(config, tensors, "float32")
    text = read_text(reference, TEXT)
    stairs = Stairs(desk([], lambda: True), 0, 1, 4)
    with pytest.raises(Aborted):
        measure_rung(4, reference, text, tensors, "float32", stairs)


def test_a_rung_rounds_every_layer_and_looks_at_no_text(tiny_config: Configs) -> None:
    recipe = rung_recipe(3, tiny_config())
    schemes = {scheme for layer in recipe.layers for scheme in (layer.attention, layer.mlp)}
    assert (recipe.method, recipe.calibration) == ("rtn", 0)
    assert [scheme.bits for scheme in schemes if scheme is not None] == [3]
    with pytest.raises(ValueError, match="no rung of 5 bits; legal: 8, 4, 3, 2"):
        rung_recipe(5, tiny_config())


def test_rungs_are_named_by_all_that_changes_them(
    tiny_config: Configs, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config()
    names = {
        rung_name(4, config, "a", "bfloat16"),
        rung_name(3, config, "a", "bfloat16"),
        rung_name(4, config, "b", "bfloat16"),
        rung_name(4, config, "a", "float32"),
        rung_name(4, tiny_config(layers=3), "a", "bfloat16"),
    }
    monkeypatch.setattr(ladder_module, "corpus_digest", lambda: "another text")
    names.add(rung_name(4, config, "a", "bfloat16"))
    assert len(names) == 6
