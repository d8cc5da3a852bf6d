"""The machine's noise, and when to measure it again."""

from __future__ import annotations

import math
import random
from statistics import stdev

import pytest

from engine.measure.noise import NoiseWatch, pair_noise
from engine.trial import Fault


def test_noise_is_the_spread_of_log_ratios() -> None:
    runs = [1.0, 1.1, 1.2, 1.0, 0.9, 1.0]  # A B, B A, A B
    logs = [math.log(1.1), math.log(1.2), math.log(1 / 0.9)]
    assert pair_noise(runs) == pytest.approx(stdev(logs))


def test_equal_runs_have_no_noise_and_noisy_ones_what_was_put_in() -> None:
    assert pair_noise([2.0] * 8) == 0.0
    source = random.Random(1)
    runs = [math.exp(source.gauss(0, 0.03)) for _ in range(4000)]
    assert pair_noise(runs) == pytest.approx(0.03 * math.sqrt(2), rel=0.06)


@pytest.mark.parametrize("runs", [[1.0, 1.0], [1.0] * 5, [1.0, 0.0, 1.0, 1.0]])
def test_what_is_no_pair_is_refused(runs: list[float]) -> None:
    with pytest.raises(ValueError, match=r"pairs|positive"):
        pair_noise(runs)


def test_two_noisy_trials_in_a_row_ask_for_a_new_measure() -> None:
    watch = NoiseWatch()
    noisy, calm = [Fault("noise")], [Fault("wrong_output")]
    seen = [watch.saw(faults) for faults in (noisy, calm, noisy, [], noisy, noisy, noisy)]
    assert seen == [False, False, False, False, False, True, False]
