"""Sampled answers held to the model's own distribution: fair draws pass, cheats do not.

The oracle draws its tokens here, from the logits of a plain forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from engine.config import EngineConfig, SamplingConfig, WorkloadConfig
from engine.measure.asking import asked_for, chance_for
from engine.measure.drawn import places, places_of, weigh
from engine.measure.timing import run_episode
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.run.engine import Engine
from engine.run.scoring import logits

LENGTH, WARM = 120, 0.4
"""The tiny model's scores have a deviation of about 1: at 0.4 a few tokens are likely."""


@dataclass
class Told:
    prompts: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]


@pytest.fixture
def model(
    tiny_config: Callable[..., ModelConfig],
    tiny_tensors: Callable[[ModelConfig], dict[str, torch.Tensor]],
) -> Llama:
    config = tiny_config()
    return Llama(config, tiny_tensors(config), "float32")


def drawn(model: Llama, prompt: list[int], temperature: float, seed: int) -> list[int]:
    """Token by token from softmax(logits / temperature), each a forward pass of its own."""
    chance = torch.Generator().manual_seed(seed)
    text = list(prompt)
    for _ in range(LENGTH):
        row = logits(model, text)[-1].double()
        scaled = (row / temperature).exp()
        text.append(int(torch.multinomial(scaled / scaled.sum(), 1, generator=chance)))
    return text[len(prompt) :]


def chances(model: Llama, drawn_at: float, judged_at: float, seeds: range) -> list[float]:
    found = []
    for seed in seeds:
        prompt = [(seed * 31 + 7 * i) % 256 for i in range(12)]
        output = drawn(model, prompt, drawn_at, seed)
        found.append(weigh(places(model, prompt, output, judged_at)).chance)
    return found


def test_fair_draws_pass(model: Llama) -> None:
    found = chances(model, WARM, WARM, range(8))
    assert min(found) > 1e-3
    assert sum(one > 0.5 for one in found) >= 2  # they are not merely let through


@pytest.mark.parametrize("wrong", [0.2, 0.8])
def test_draws_at_another_temperature_do_not(model: Llama, wrong: float) -> None:
    assert max(chances(model, wrong, WARM, range(3))) < 1e-3


def test_the_likeliest_token_each_time_is_no_draw(model: Llama) -> None:
    prompt = list(range(12))
    text = list(prompt)
    for _ in range(LENGTH):
        text.append(int(logits(model, text)[-1].argmax()))
    assert not weigh(places(model, prompt, text[12:], WARM)).fair


def test_an_answer_to_another_prompt_does_not(model: Llama) -> None:
    output = drawn(model, [1, 2, 3, 4], WARM, 5)
    found = weigh(places(model, [200, 90, 17, 60], output, WARM))
    assert found.chance < 1e-6


def test_every_request_counts_and_places_follow_from_the_prompt(model: Llama) -> None:
    one, other = (3, 1, 4), (1, 5, 9)
    runs = [Told((one, other), ((2, 6), (5, 3))), Told((one,), ((8,),))]
    found = places_of(model, runs, WARM)
    assert len(found) == 5 and all(0 <= place <= 1 for place in found)
    assert found == places_of(model, runs, WARM)


def test_a_place_is_within_the_tokens_own_piece(model: Llama) -> None:
    """By the definition: what is likelier comes before it, itself is as long as its chance."""
    prompt, token = [9, 8, 7], 65
    row = torch.softmax(logits(model, prompt)[-1].double() / WARM, dim=-1)
    before = float(row[row > row[token]].sum())
    (place,) = places(model, prompt, [token], WARM)
    assert before <= place <= before + float(row[token])


def test_a_request_asks_as_its_build_says() -> None:
    warm = SamplingConfig(0.7)
    params = asked_for(warm, (1, 2, 3), 9, to_the_end=True)
    assert (params.temperature, params.max_tokens, params.ignore_eos) == (0.7, 9, True)
    assert params.seed == chance_for([1, 2, 3]) != chance_for([1, 2, 4])
    assert not asked_for(SamplingConfig(), (1,), 9).ignore_eos
    assert chance_for([1, 2, 3]) == 0x8A6AE151220012  # as `sha256sum` begins for "1,2,3"


def test_a_sampled_episode_follows_from_its_prompts(model: Llama) -> None:
    def said(sampling: SamplingConfig, *prompts: list[int]) -> Any:
        engine = Engine(model, EngineConfig(WorkloadConfig(3, 20)))
        return run_episode(engine, prompts, 20, sampling=sampling).outputs

    warm = SamplingConfig(WARM)
    first = said(warm, [1, 2, 3])
    assert first == said(warm, [1, 2, 3])
    assert first != said(SamplingConfig(), [1, 2, 3])
    assert said(SamplingConfig(), [1, 2, 3]) == said(SamplingConfig(), [1, 2, 3])
