"""The statistics against scipy, the bootstrap and simulation: never against themselves."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import scipy.special
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from engine.intervals import (
    Samples,
    decide,
    estimate,
    incomplete_beta,
    median_bounds,
    median_rank,
    paired_ratio,
    settled,
    t_quantile,
)
from engine.trial import Bound

ALPHA, DEAD_BAND, LOOKS = 0.0167, 0.01, (8, 16, 32)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 15, 31, 100, 1000, 2.5])
@pytest.mark.parametrize("probability", [1e-4, 0.00835, 0.3, 0.5, 0.6, 0.975, 0.99165, 0.9999])
def test_t_quantile_equals_scipy(probability: float, freedom: float) -> None:
    expected = scipy.stats.t.ppf(probability, freedom)
    assert t_quantile(probability, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(st.floats(0, 1), st.floats(0.05, 200), st.floats(0.05, 200))
def test_incomplete_beta_equals_scipy(x: float, a: float, b: float) -> None:
    assert incomplete_beta(x, a, b) == pytest.approx(scipy.special.betainc(a, b, x), abs=1e-10)


@pytest.mark.parametrize("probability", [0.0, 1.0, -0.1, 1.1, math.nan])
def test_a_probability_outside_its_range_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="probability"):
        t_quantile(probability, 5)


def test_degrees_of_freedom_must_be_positive() -> None:
    with pytest.raises(ValueError, match="freedom"):
        t_quantile(0.9, 0)
    with pytest.raises(ValueError, match="0 <= x <= 1"):
        incomplete_beta(1.5, 1, 1)


def test_paired_interval_equals_scipys_on_the_logs() -> None:
    source = random.Random(1)
    ratios = [math.exp(source.gauss(0.2, 0.05)) for _ in range(16)]
    logs = [math.log(ratio) for ratio in ratios]
    low, high = scipy.stats.t.interval(
        1 - ALPHA, len(logs) - 1, loc=sum(logs) / len(logs), scale=scipy.stats.sem(logs)
    )
    found = paired_ratio(ratios, ALPHA)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert found.point == pytest.approx(scipy.stats.gmean(ratios))


def test_paired_interval_agrees_with_the_bootstrap() -> None:
    """The percentile bootstrap knows nothing of Student; at 32 pairs both must say the same."""
    source = random.Random(3)
    logs = [source.gauss(0.1, 0.04) for _ in range(32)]
    means = sorted(sum(source.choices(logs, k=32)) / 32 for _ in range(4000))
    low, high = means[int(4000 * ALPHA / 2)], means[int(4000 * (1 - ALPHA / 2)) - 1]
    found = paired_ratio([math.exp(value) for value in logs], ALPHA)
    width = high - low
    assert math.log(found.low) == pytest.approx(low, abs=0.15 * width)
    assert math.log(found.high) == pytest.approx(high, abs=0.15 * width)


@pytest.mark.parametrize("count", [8, 32])
def test_paired_interval_covers_the_truth_as_often_as_it_says(count: int) -> None:
    source = random.Random(count)
    covered = 0
    for _ in range(2000):
        found = paired_ratio([math.exp(source.gauss(0, 0.03)) for _ in range(count)], 0.05)
        covered += found.low <= 1.0 <= found.high
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_swapping_the_builds_inverts_the_interval() -> None:
    ratios = [1.1, 1.2, 1.15, 1.3]
    forth, back = paired_ratio(ratios, ALPHA), paired_ratio([1 / r for r in ratios], ALPHA)
    assert (back.point, back.low, back.high) == pytest.approx(
        (1 / forth.point, 1 / forth.high, 1 / forth.low)
    )


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.inf, math.nan])
def test_a_ratio_that_cannot_be_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        paired_ratio([1.0, ratio], ALPHA)


def test_a_single_pair_bounds_nothing() -> None:
    assert not paired_ratio([2.0], ALPHA).bounded
    bound = Bound("tpot_ratio", ">=", 1.0)
    (decision,) = decide({"tpot_ratio": Samples("paired", (2.0,))}, [bound], ALPHA, DEAD_BAND)
    assert decision.holds is None


@pytest.mark.parametrize("alpha", [0.05, 0.0167])
@pytest.mark.parametrize("count", range(1, 40))
def test_median_rank_equals_the_binomial_tail(count: int, alpha: float) -> None:
    rank = median_rank(count, alpha)
    assert rank == 0 or scipy.stats.binom.cdf(rank - 1, count, 0.5) <= alpha
    assert scipy.stats.binom.cdf(rank, count, 0.5) > alpha


@pytest.mark.parametrize(("alpha", "fewest"), [(0.05, 5), (0.0167, 6)])
def test_too_few_samples_bound_no_median(alpha: float, fewest: int) -> None:
    values = [float(value) for value in range(fewest)]
    assert not median_bounds(values[:-1], alpha).bounded
    assert median_bounds(values, alpha).bounded


@pytest.mark.parametrize(
    "draw",
    [
        lambda source: source.gauss(math.log(2), 1),
        lambda source: math.log(2) + math.log(max(source.expovariate(math.log(2)), 1e-12)),
    ],
    ids=["normal", "skewed"],
)
def test_median_bound_is_wrong_in_at_most_five_percent(
    draw: Callable[[random.Random], float],
) -> None:
    source = random.Random(7)
    above = 0
    for _ in range(4000):
        above += median_bounds([draw(source) for _ in range(11)], 0.05).low > math.log(2)
    assert above / 4000 <= 0.05 + 0.01


BOUND_RULES = [
    # op, bound, value, holds
    (">=", 0.5, 0.6, True),
    (">=", 0.5, 0.4, False),
    ("<=", 0.5, 0.4, True),
    ("<=", 0.5, 0.6, False),
    (">=", 0.5, 0.5, True),
    ("<=", 0.5, 0.5, True),
]


@pytest.mark.parametrize(("op", "bound", "value", "holds"), BOUND_RULES)
def test_a_counted_value_is_simply_compared(
    op: str, bound: float, value: float, holds: bool
) -> None:
    goal = Bound("kl", op, bound)  # type: ignore[arg-type]
    (decision,) = decide({"kl": Samples("exact", (value,))}, [goal], ALPHA, DEAD_BAND)
    assert decision.holds is holds
    assert (decision.estimate.low, decision.estimate.high) == (value, value)


def test_a_tight_ratio_inside_the_dead_band_stays_open() -> None:
    ratios = tuple(1.005 + offset for offset in (0.0001, -0.0001, 0.0002, -0.0002) * 8)
    near, far = Bound("tpot_ratio", ">=", 1.0), Bound("tpot_ratio", ">=", 0.99)
    seen = {"tpot_ratio": Samples("paired", ratios)}
    open_goal, held = decide(seen, [near, far], ALPHA, DEAD_BAND)
    assert open_goal.estimate.low > 1.0 and open_goal.holds is None
    assert held.holds is True
    assert not settled([open_goal, held]) and settled([held])


def test_an_interval_across_the_bound_stays_open_and_a_missing_metric_too() -> None:
    wide = Samples("paired", (0.8, 1.4, 0.9, 1.6, 0.7, 1.5, 0.8, 1.3))
    goals = [Bound("tpot_ratio", "<=", 1.0), Bound("kl", "<=", 1.0)]
    decisions = decide({"tpot_ratio": wide}, goals, ALPHA, DEAD_BAND)
    assert [decision.holds for decision in decisions] == [None, None]


def test_an_estimate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        estimate(Samples("exact", ()), ALPHA)


Session = Callable[[int], float]


def drifting_session(source: random.Random, runs: int, noise: float = 0.02) -> list[float]:
    """Log durations of equal runs: 5 % linear drift over the session, AR(1) noise (phi 0.5)."""
    sign = source.choice((-1, 1))
    wander, logs = source.gauss(0, noise), []
    for run in range(runs):
        wander = 0.5 * wander + source.gauss(0, noise * math.sqrt(1 - 0.25))
        logs.append(wander + sign * math.log(1.05) * run / (runs - 1))
    return logs


def abba_verdict(logs: list[float], effect: float = 0.0) -> bool | None:
    """The game's rule on a session whose candidate is slower by `effect` (log)."""
    ratios: list[float] = []
    for pair in range(LOOKS[-1]):
        first, second = logs[2 * pair], logs[2 * pair + 1]
        gap = second - first if pair % 2 == 0 else first - second
        ratios.append(math.exp(gap + effect))
        if len(ratios) in LOOKS:
            seen = {"tpot_ratio": Samples("paired", tuple(ratios))}
            (decision,) = decide(seen, [Bound("tpot_ratio", "<=", 1.0)], ALPHA, DEAD_BAND)
            if decision.holds is not None:
                return decision.holds
    return None


def naive_verdict(logs: list[float]) -> bool:
    """All of A, then all of B, then a 95 % interval: the rule this game does not use."""
    half = len(logs) // 2
    return bool(scipy.stats.ttest_ind(logs[:half], logs[half:]).pvalue < 0.05)


def test_equals_are_rarely_told_apart_under_drift_and_often_by_the_naive_rule() -> None:
    source = random.Random(20)
    sessions = 2000
    ours = naive = 0
    for _ in range(sessions):
        logs = drifting_session(source, 64)
        ours += abba_verdict(logs) is not None
        naive += naive_verdict(logs)
    rates = {"abba with looks": ours / sessions, "all A then all B": naive / sessions}
    print(rates)
    assert rates["abba with looks"] <= 0.055, rates
    assert rates["all A then all B"] > 0.30, rates


def test_looks_on_white_noise_keep_their_five_percent() -> None:
    source = random.Random(21)
    sessions = 2000
    called = sum(
        abba_verdict([source.gauss(0, 0.05) for _ in range(64)]) is not None
        for _ in range(sessions)
    )
    assert called / sessions <= 0.055


def test_a_true_five_percent_is_found_through_two_percent_noise() -> None:
    source = random.Random(22)
    sessions = 1000
    found = sum(
        abba_verdict([source.gauss(0, 0.02) for _ in range(64)], math.log(1.05)) is False
        for _ in range(sessions)
    )
    assert found / sessions > 0.95
