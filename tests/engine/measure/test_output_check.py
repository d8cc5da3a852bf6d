"""Outputs of a real (tiny) engine pass; outputs that were tampered with do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.cache.storage import KVStorage
from engine.config import CacheConfig, EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.measure.output_check import (
    TOLERANCE,
    check_output,
    chosen_request,
    token_distances,
    tolerance,
)
from engine.measure.timing import Episode, run_episode
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.run.engine import Engine
from engine.run.scoring import logits

Configs = Callable[..., ModelConfig]
Tensors = Callable[[ModelConfig], dict[str, torch.Tensor]]


@pytest.fixture
def models(tiny_config: Configs, tiny_tensors: Tensors) -> Callable[[str], Llama]:
    config = tiny_config()
    return lambda precision: Llama(config, tiny_tensors(config), precision)


def episode(
    model: Llama, chunk: int = 0, bits: int = 0, break_cache: Callable[[Any], None] | None = None
) -> Episode:
    config = EngineConfig(
        WorkloadConfig(20, 12),
        ScheduleConfig(3, chunk),
        RunConfig(model.precision, 1),
        CacheConfig(bits=bits),
    )
    prompts = [[(7 * r + 3 * i) % 256 for i in range(20)] for r in range(3)]
    engine = Engine(model, config)
    if break_cache is not None:
        break_cache(engine._cache)
    return run_episode(engine, prompts, 12)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("chunk", [0, 16])
def test_an_honest_run_is_explained(
    models: Callable[[str], Llama], precision: str, chunk: int
) -> None:
    run = episode(models(precision), chunk)
    assert [check_output(models("float32"), run, r, precision) for r in range(3)] == [None] * 3


@pytest.mark.parametrize("bits", [16, 8, 4])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_honest_run_on_a_narrow_cache_is_explained(
    models: Callable[[str], Llama], precision: str, bits: int
) -> None:
    run = episode(models(precision), bits=bits)
    found = [check_output(models("float32"), run, r, precision, bits) for r in range(3)]
    assert found == [None] * 3


@pytest.mark.parametrize("bits", [0, 8, 4])
def test_one_exchanged_token_is_found_whatever_the_width(
    models: Callable[[str], Llama], bits: int
) -> None:
    run = episode(models("float32"), bits=bits)
    tokens = list(run.outputs[1])
    tokens[4] = worst_token(models("float32"), [*run.prompts[1], *tokens[:4]])
    forged = replace(run, outputs=(run.outputs[0], tuple(tokens), run.outputs[2]))
    wrong = check_output(models("float32"), forged, 1, "bfloat16", bits)
    assert wrong is not None and wrong.place == 4


def exchanged(cache: Any) -> None:
    """Every vector is written where its neighbour belongs."""
    write = cache.write

    def wrong(layer: int, addresses: Any, keys: torch.Tensor, values: torch.Tensor) -> None:
        write(layer, addresses, keys.roll(1, 0), values.roll(1, 0))

    cache.write = wrong


def emptied(cache: Any) -> None:
    """Nothing is ever kept."""
    cache.write = lambda *_: None


@pytest.mark.parametrize("wrong", [exchanged, emptied])
@pytest.mark.parametrize("bits", [0, 16, 8, 4])
def test_a_run_on_a_wrong_cache_is_found_whatever_the_width(
    models: Callable[[str], Llama], wrong: Callable[[Any], None], bits: int
) -> None:
    run = episode(models("bfloat16"), bits=bits, break_cache=wrong)
    assert any(check_output(models("float32"), run, r, "bfloat16", bits) for r in range(3))


def test_a_width_that_keeps_nothing_cannot_agree_with_itself(
    models: Callable[[str], Llama], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the run and a scoring of its own width read zeros: the full-width one tells."""
    write = KVStorage.write

    def keep_nothing_in_4_bits(storage: KVStorage, *arguments: Any) -> None:
        if storage.bits != 4:
            write(storage, *arguments)

    monkeypatch.setattr(KVStorage, "write", keep_nothing_in_4_bits)
    run = episode(models("bfloat16"), bits=4)
    found = [check_output(models("float32"), run, r, "bfloat16", 4) for r in range(3)]
    assert any(one is not None and one.allowed == tolerance("bfloat16", 4) for one in found)


def worst_token(model: Llama, text: list[int]) -> int:
    return int(logits(model, text)[-1].argmin())


def test_a_narrower_cache_is_allowed_no_less_and_never_a_random_token() -> None:
    """A token drawn at random lies about four standard deviations below the best."""
    for precision in TOLERANCE:
        allowed = [tolerance(precision, bits) for bits in (0, 16, 8, 4)]
        assert allowed == sorted(allowed) and allowed[-1] <= 2


def test_distances_are_those_of_the_whole_texts_scores(models: Callable[[str], Llama]) -> None:
    """Against all scores at once, for a text longer than a scoring chunk and one shorter."""
    model = models("float32")
    for length in (5, 300):
        prompt, output = [(5 * i) % 256 for i in range(length)], [1, 2, 3, 4]
        scores = logits(model, [*prompt, *output])[length - 1 : -1].double()
        wanted = [
            float((row.max() - row[token]) / row.std())
            for row, token in zip(scores, output, strict=True)
        ]
        distances, best = token_distances(model, prompt, output)
        assert distances == pytest.approx(wanted, abs=1e-4)
        assert best == scores.argmax(-1).tolist()


@pytest.mark.parametrize("place", [0, 5, 11])
def test_one_exchanged_token_is_found(models: Callable[[str], Llama], place: int) -> None:
    run = episode(models("float32"))
    tokens = list(run.outputs[1])
    tokens[place] = (tokens[place] + 150) % 320
    forged = replace(run, outputs=(run.outputs[0], tuple(tokens), run.outputs[2]))
    wrong = check_output(models("float32"), forged, 1, "bfloat16")
    assert wrong is not None and wrong.place == place and wrong.token == tokens[place]
    assert wrong.best == run.outputs[1][place] and wrong.distance > wrong.allowed


def test_a_model_that_skips_a_layer_is_found(tiny_config: Configs, tiny_tensors: Tensors) -> None:
    config = tiny_config(layers=4)
    tensors = tiny_tensors(config)
    cheat = Llama(tiny_config(layers=3), tensors, "bfloat16")
    honest = Llama(config, tensors, "float32")
    run = episode(cheat)
    assert any(check_output(honest, run, r, "bfloat16") for r in range(3))


def test_scores_that_are_no_numbers_are_wrong(models: Callable[[str], Llama]) -> None:
    model = models("float32")
    run = episode(model)
    with torch.inference_mode():
        model.final_norm.gain.fill_(float("nan"))
    assert check_output(model, run, 0, "float32") is not None


def test_outputs_are_never_checked_with_a_rounded_model(models: Callable[[str], Llama]) -> None:
    run: Any = episode(models("float32"))
    with pytest.raises(ValueError, match="float32 model, not bfloat16"):
        check_output(models("bfloat16"), run, 0, "bfloat16")


def test_chance_picks_the_request_and_the_seed_fixes_it() -> None:
    picks = [chosen_request(3, run, 8) for run in range(200)]
    assert picks == [chosen_request(3, run, 8) for run in range(200)]
    assert set(picks) == set(range(8))
    assert TOLERANCE["float32"] < TOLERANCE["float16"] < TOLERANCE["bfloat16"] < 1
