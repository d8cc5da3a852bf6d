"""A trial's costs of drafting, and other lengths by the formula: worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from game.rules.draft_costs import DraftCosts, chance_of, costs_of

COSTS = DraftCosts(length=4, token=0.25, verify=1.2)


def test_costs_are_parts_of_the_drafted_step() -> None:
    """A step of 2.2 with 5/11 of it drafting: one step of four drafted tokens, 1.2 to verify."""
    found = costs_of(4, 2.2, 5 / 11)
    assert found is not None
    assert found.length == 4
    assert (found.token, found.verify) == pytest.approx((0.25, 1.2))


@pytest.mark.parametrize("figures", [(0, 2.0, 0.5), (4, 0.0, 0.5), (4, -1.0, 0.5), (4, 2.0, 1.0),
                                     (4, 2.0, -0.1), (4, 2.0, 1.5)])  # fmt: skip
def test_figures_that_cannot_be_have_no_costs(figures: tuple[int, float, float]) -> None:
    assert costs_of(*figures) is None


def test_verifying_costs_a_step_without_a_draft_and_what_was_measured_with_this_one() -> None:
    assert [COSTS.verify_at(length) for length in (0, 1, 2, 4, 8)] == pytest.approx(
        [1.0, 1.05, 1.1, 1.2, 1.4]
    )
    quick = DraftCosts(4, 0.25, 0.8)
    assert [quick.verify_at(length) for length in (0, 2, 4, 8, 32)] == pytest.approx(
        [1.0, 0.9, 0.8, 0.8, 0.8]
    )


def test_gains_are_tokens_over_costs() -> None:
    assert COSTS.speed_up(0.5, 1) == pytest.approx(1.5 / 1.3)
    assert COSTS.speed_up(0.5, 2) == pytest.approx(1.75 / 1.6)
    assert COSTS.speed_up(0.9, 4) == pytest.approx(4.0951 / 2.2)


def test_the_best_length_is_among_those_asked_for() -> None:
    """At r 0.5: 1.154, 1.094, ... ; at r 0.9: 1.46, 1.69, 1.81, 1.861, 1.874, 1.863, ..."""
    assert COSTS.best(0.5) == 1
    assert COSTS.best(0.9, 4) == 4
    assert COSTS.best(0.9) == 5
    assert DraftCosts(4, 0.5, 1.2).best(0.1) == 0  # 1.1 tokens for 1.55 steps: none gains


def test_the_chance_gives_the_tokens_that_were_measured() -> None:
    """1 + r + r^2 = 1.75 at r = 1/2; 1 + r + r^2 + r^3 = 2 at the tribonacci constant's inverse."""
    assert chance_of(1.75, 2) == pytest.approx(0.5)
    assert chance_of(2.0, 3) == pytest.approx(0.543689, abs=1e-6)
    assert chance_of(1.0, 4) == pytest.approx(0.0, abs=1e-9)
    assert chance_of(5.0, 4) == pytest.approx(1.0)
    assert chance_of(9.0, 4) == 1.0


@given(st.floats(0.0, 1.0), st.integers(1, 32))
def test_the_chance_is_found_again(chance: float, length: int) -> None:
    tokens = 1 + sum(chance**place for place in range(1, length + 1))
    assert chance_of(tokens, length) == pytest.approx(chance, abs=1e-6)
