"""The test of Kolmogorov and Smirnov, against its published tables and against chance itself."""

from __future__ import annotations

import random

import pytest

from engine.uniformity import chance_of, distance


@pytest.mark.parametrize(
    ("count", "far", "chance"),
    [  # exact critical values: Miller, J. Am. Statist. Assoc. 51 (1956), table 1, two-sided
        (10, 0.36866, 0.10),
        (10, 0.40925, 0.05),
        (10, 0.48893, 0.01),
        (20, 0.29408, 0.05),
        (20, 0.35241, 0.01),
        (100, 0.13403, 0.05),
        (100, 0.16081, 0.01),
    ],
)
def test_chances_are_those_of_the_tables(count: int, far: float, chance: float) -> None:
    assert chance_of(far, count) == pytest.approx(chance, rel=0.05)


def test_distances_by_hand() -> None:
    assert distance([0.5]) == 0.5
    assert distance([0.125, 0.375, 0.625, 0.875]) == pytest.approx(0.125)
    assert distance([0.9, 0.1, 0.2, 0.15]) == pytest.approx(0.75 - 0.2)  # in any order
    assert distance([1.0, 1.0]) == 1.0
    assert distance([0.0]) == 1.0


@pytest.mark.parametrize("wrong", [[], [-0.1], [1.1], [0.2, float("nan")]])
def test_what_is_no_place_is_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        distance(wrong)


def test_extremes() -> None:
    assert chance_of(0.001, 10) == 1.0
    assert chance_of(1.0, 1000) == 0.0


@pytest.mark.parametrize("count", [12, 48, 300])
def test_of_even_draws_one_in_ten_lies_beyond_the_tenth(count: int) -> None:
    chance = random.Random(f"even/{count}")
    found = [
        chance_of(distance([chance.random() for _ in range(count)]), count) for _ in range(1_000)
    ]
    for level in (0.05, 0.1, 0.5):
        share = sum(one < level for one in found) / len(found)
        assert share == pytest.approx(level, abs=4 * (level * (1 - level) / len(found)) ** 0.5)
