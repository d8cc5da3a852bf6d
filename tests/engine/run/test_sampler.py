"""Sampling judged by its distribution; the same judge must condemn a sampler that cheats."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from engine.run.sampler import Sampler, probabilities
from engine.schedule.sequence import SamplingParams

DRAWS = 20_000
LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -1.5])


def exact(temperature: float, top_p: float) -> list[float]:
    """The same distribution in Python floats, from its definition."""
    weights = [math.exp(logit / temperature) for logit in LOGITS.tolist()]
    full = [weight / sum(weights) for weight in weights]
    ranked = sorted(range(len(full)), key=lambda i: -full[i])
    kept, mass = set(), 0.0
    for token in ranked:
        kept.add(token)
        mass += full[token]
        if mass >= top_p:
            break
    return [p / mass if i in kept else 0.0 for i, p in enumerate(full)]


def draws(logits: Tensor, temperature: float, top_p: float) -> list[int]:
    """Draws of one request from its own stream of chance."""
    sampler = Sampler()
    sampler.open(0, SamplingParams(max_tokens=1, temperature=temperature, top_p=top_p, seed=17))
    greedy = logits[None].argmax(-1)
    return [sampler.sample([0], logits[None], greedy)[0] for _ in range(DRAWS)]


def p_value(tokens: list[int], expected: list[float]) -> float:
    counts = np.bincount(tokens, minlength=len(expected))
    possible = np.array(expected) > 0
    if counts[~possible].any():
        return 0.0  # a token that cannot be drawn was drawn
    return float(stats.chisquare(counts[possible], np.array(expected)[possible] * DRAWS).pvalue)


@pytest.mark.parametrize(
    ("temperature", "top_p"), [(1.0, 1.0), (0.5, 1.0), (2.0, 1.0), (1.0, 0.8), (1.5, 0.95)]
)
def test_tokens_fall_as_the_exact_distribution_says(temperature: float, top_p: float) -> None:
    expected = exact(temperature, top_p)
    got = probabilities(LOGITS, temperature, top_p)
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-6)
    assert p_value(draws(LOGITS, temperature, top_p), expected) > 1e-3


@pytest.mark.parametrize(("temperature", "top_p"), [(0.5, 1.0), (2.0, 1.0)])
def test_a_sampler_that_ignores_temperature_is_condemned(temperature: float, top_p: float) -> None:
    assert p_value(draws(LOGITS, 1.0, top_p), exact(temperature, top_p)) < 1e-6


def test_a_sampler_that_ignores_the_nucleus_is_condemned() -> None:
    assert p_value(draws(LOGITS, 1.0, 1.0), exact(1.0, 0.8)) < 1e-6


def test_greedy_is_all_mass_on_the_first_largest() -> None:
    tied = torch.tensor([0.0, 3.0, 3.0, 1.0])
    assert probabilities(tied, 0.0).tolist() == [0.0, 1.0, 0.0, 0.0]
    assert set(draws(LOGITS, 0.0, 1.0)[:50]) == {0}


@pytest.mark.parametrize("temperature", [1e-6, 1e-3, 1e6])
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e30])
def test_no_temperature_makes_a_distribution_of_nothing(temperature: float, scale: float) -> None:
    got = probabilities(LOGITS * scale, temperature, 0.9)
    assert bool(torch.isfinite(got).all())
    assert float(got.sum()) == pytest.approx(1.0, abs=1e-5)


def test_the_smallest_nucleus_still_holds_the_best_token() -> None:
    assert probabilities(LOGITS, 1.0, 1e-9).tolist() == [1.0, 0, 0, 0, 0, 0]


def test_streams_of_chance_are_the_requests_own() -> None:
    """Request 1 is asked for tokens in between, and request 0 does not notice."""
    params = SamplingParams(max_tokens=1, temperature=1.0, seed=3)
    alone, together = Sampler(), Sampler()
    for sampler in (alone, together):
        sampler.open(0, params)
    together.open(1, params)
    one, two = LOGITS[None], torch.stack((LOGITS, LOGITS))
    expected = [alone.sample([0], one, one.argmax(-1))[0] for _ in range(40)]
    got = [together.sample([0, 1], two, two.argmax(-1)) for _ in range(40)]
    assert [pair[0] for pair in got] == expected
    assert [pair[1] for pair in got] == expected  # the same seed is the same stream
