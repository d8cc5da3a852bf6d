"""The formula against its own story told out, and against the published closed form."""

from __future__ import annotations

import random

import pytest

from engine.speculate.formula import best_length, break_even, speed_up, tokens_a_step


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.82, 1.0])
@pytest.mark.parametrize("length", [0, 1, 4, 8])
def test_tokens_a_step_are_what_stands_before_the_first_that_falls(
    acceptance: float, length: int
) -> None:
    """Draws of a coin for each place, until one falls."""
    chance = random.Random(1)
    rounds, given = 20_000, 0
    for _ in range(rounds):
        stood = 0
        while stood < length and chance.random() < acceptance:
            stood += 1
        given += stood + 1
    assert given / rounds == pytest.approx(tokens_a_step(acceptance, length), rel=0.02)


@pytest.mark.parametrize(("r", "k", "c"), [(0.82, 4, 0.2), (0.41, 3, 0.0), (0.6, 8, 0.1)])
def test_with_a_verifying_pass_of_one_step_it_is_the_published_form(
    r: float, k: int, c: float
) -> None:
    published = (1 - r ** (k + 1)) / ((1 - r) * (k * c + 1))
    assert speed_up(r, k, c) == pytest.approx(published)


def test_a_free_and_endless_draft_comes_to_one_over_what_falls() -> None:
    """The tale's 1 / (1 - r) is that limit, and nothing else."""
    assert speed_up(0.75, 400, 0.0) == pytest.approx(4.0)
    assert speed_up(0.75, 4, 0.1) < 3.0


def test_break_even_is_where_nothing_is_gained() -> None:
    at = break_even(3, 0.2, 1.1)
    assert at is not None and speed_up(at, 3, 0.2, 1.1) == pytest.approx(1.0)
    assert speed_up(at + 0.01, 3, 0.2, 1.1) > 1.0 > speed_up(at - 0.01, 3, 0.2, 1.1)
    assert break_even(2, 1.0) is None  # as dear as the target itself
    assert break_even(4, 0.0) == pytest.approx(0.0, abs=1e-9)


def test_the_best_length_may_be_none() -> None:
    costs = {1: 1.1, 2: 1.15, 4: 1.3, 8: 2.4}
    assert best_length(0.9, 0.1, costs) == 4
    assert best_length(0.5, 0.3, costs) == 1
    assert best_length(0.2, 0.5, costs) == 0
    assert best_length(0.9, 0.1, {}) == 0
