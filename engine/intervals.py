"""From samples to a decision: intervals, and the rule of looks that ends a trial.

Torch-free and pure: the trial runner asks `decide` whether it has looked enough, and the judge
asks the same function what the looks have shown, so the two can never disagree.

A ratio between builds is judged by a paired t interval on log ratios. Every look spends
alpha = 0.0167, so three looks together call a false winner in at most 5 % of trials
(Bonferroni), and a dead band of 1 % around the bound keeps trifles from being called results.
A level (a share, a duration) is judged by one-sided bounds of the median from order statistics,
which assume nothing of the distribution's shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, median, stdev
from typing import Literal

from engine.trial import Bound, Op

Statistic = Literal["paired", "median", "exact"]

_FRACTION_LIMIT = 500
_FRACTION_TOLERANCE = 1e-15
_TINY = 1e-300


@dataclass(frozen=True)
class Samples:
    """What was seen of one metric.

    `paired` values are ratios, candidate over reference, one a pair; `median` values are one a
    run; an `exact` value is counted, not sampled, and has no interval.
    """

    statistic: Statistic
    values: tuple[float, ...]


@dataclass(frozen=True)
class Estimate:
    """A point and its interval. `bounded` is False where the samples are too few for one:
    `low` and `high` are then the extremes seen, to be shown and never to be judged by."""

    point: float
    low: float
    high: float
    bounded: bool


@dataclass(frozen=True)
class Decision:
    """One goal after a look: `holds` is None while the evidence lies across the bound."""

    metric: str
    op: Op
    bound: float
    estimate: Estimate
    holds: bool | None


def decide(
    samples: Mapping[str, Samples],
    bounds: Iterable[Bound],
    alpha: float,
    dead_band: float,
) -> tuple[Decision, ...]:
    """Each bound against what was seen so far; a bound whose metric is missing stays open.

    Args:
        samples: by metric name.
        alpha: the error one look may spend, two-sided for ratios, one-sided for levels.
        dead_band: relative distance a ratio's point estimate must keep from its bound.
    """
    return tuple(
        _decide_one(samples.get(bound.metric), bound, alpha, dead_band) for bound in bounds
    )


def settled(decisions: Iterable[Decision]) -> bool:
    """True where no goal is open: another look could change nothing that matters."""
    return all(decision.holds is not None for decision in decisions)


def estimate(samples: Samples, alpha: float) -> Estimate:
    """The point and interval of one metric's samples.

    Raises:
        ValueError: no samples, or a ratio that is not positive and finite.
    """
    if not samples.values:
        raise ValueError("an estimate needs at least one sample")
    if samples.statistic == "paired":
        return paired_ratio(samples.values, alpha)
    if samples.statistic == "median":
        return median_bounds(samples.values, alpha)
    value = samples.values[-1]
    return Estimate(value, value, value, bounded=True)


def _decide_one(samples: Samples | None, bound: Bound, alpha: float, dead_band: float) -> Decision:
    if samples is None or not samples.values:
        nothing = Estimate(0.0, 0.0, 0.0, bounded=False)
        return Decision(bound.metric, bound.op, bound.bound, nothing, None)
    found = estimate(samples, alpha)
    band = dead_band if samples.statistic == "paired" else 0.0
    return Decision(bound.metric, bound.op, bound.bound, found, _side(found, bound, band))


def _side(found: Estimate, bound: Bound, dead_band: float) -> bool | None:
    """True where the whole interval is on the good side, False where it is on the bad one.

    A value equal to its bound satisfies it, as `>=` and `<=` say; only a counted value can be
    equal and decided, since a sampled ratio must clear the dead band first.
    """
    if not found.bounded:
        return None
    if dead_band and abs(found.point - bound.bound) < dead_band * abs(bound.bound):
        return None
    if bound.op == ">=":
        good, bad = found.low >= bound.bound, found.high < bound.bound
    else:
        good, bad = found.high <= bound.bound, found.low > bound.bound
    return True if good else False if bad else None


def paired_ratio(ratios: Sequence[float], alpha: float) -> Estimate:
    """Geometric mean ratio with its two-sided 1 - alpha interval.

    With d_i = ln(ratio_i): exp(mean(d) +/- t(1 - alpha/2, n - 1) * sd(d) / sqrt(n)).
    Pairing removes what both builds share (drift, a warm room); logs make x2 and x1/2 symmetric.

    Raises:
        ValueError: a ratio that is not positive and finite.
    """
    for ratio in ratios:
        if not (math.isfinite(ratio) and ratio > 0):
            raise ValueError(f"a ratio of durations is positive and finite, not {ratio}")
    logs = [math.log(ratio) for ratio in ratios]
    centre = fmean(logs)
    if len(logs) < 2:
        return Estimate(math.exp(centre), min(ratios), max(ratios), bounded=False)
    half = t_quantile(1 - alpha / 2, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Estimate(
        math.exp(centre), math.exp(centre - half), math.exp(min(centre + half, 700.0)), True
    )


def median_bounds(values: Sequence[float], alpha: float) -> Estimate:
    """Median, with a lower and an upper bound that each hold with confidence 1 - alpha.

    The k-th smallest of n lies above the true median only if fewer than k samples fell below
    it, which has probability P(Binomial(n, 1/2) < k). The largest k that keeps this at or under
    alpha gives the lower bound, its mirror image the upper one. Five samples are the fewest
    that bound a median at 5 %, six at 1.67 %.
    """
    ordered = sorted(values)
    middle = median(ordered)
    rank = median_rank(len(ordered), alpha)
    if rank == 0:
        return Estimate(middle, ordered[0], ordered[-1], bounded=False)
    return Estimate(middle, ordered[rank - 1], ordered[-rank], bounded=True)


def median_rank(count: int, alpha: float) -> int:
    """The largest k with P(Binomial(count, 1/2) <= k - 1) <= alpha; 0 where there is none."""
    allowed = alpha * 2.0**count
    below = 0
    for rank in range(1, count + 1):
        below += math.comb(count, rank - 1)
        if below > allowed:
            return rank - 1
    return 0


@lru_cache(maxsize=512)
def t_quantile(probability: float, freedom: float) -> float:
    """The value Student's t with `freedom` degrees stays under with `probability`.

    Inverts the upper tail 1 - F(t) = I(freedom / (freedom + t^2); freedom/2, 1/2) / 2 by
    bisection, which cannot diverge; the tail is monotone.

    Raises:
        ValueError: a probability outside (0, 1) or degrees of freedom that are not positive.
    """
    if not 0 < probability < 1:
        raise ValueError(f"a probability lies strictly between 0 and 1, not {probability}")
    if freedom <= 0:
        raise ValueError(f"degrees of freedom are positive, not {freedom}")
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    tail = 1 - probability
    low, high = 0.0, 1.0
    while _upper_tail(high, freedom) > tail and high < 1e300:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _upper_tail(middle, freedom) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _upper_tail(value: float, freedom: float) -> float:
    """P(T > value) for value >= 0."""
    return incomplete_beta(freedom / (freedom + value * value), freedom / 2, 0.5) / 2


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I(x; a, b).

    Evaluated by its continued fraction (Abramowitz and Stegun 26.5.8) with Lentz's method, on
    whichever side of the symmetry I(x; a, b) = 1 - I(1 - x; b, a) converges fast.

    Raises:
        ValueError: x outside [0, 1], or a, b not positive.
    """
    if not 0 <= x <= 1 or a <= 0 or b <= 0:
        raise ValueError(f"I(x; a, b) needs 0 <= x <= 1 and a, b > 0, not {x}, {a}, {b}")
    if x in (0.0, 1.0):
        return x
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(x, a, b) / a
    return 1 - front * _beta_fraction(1 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """1 / (1 + d1 / (1 + d2 / (1 + ...))), d odd and even as in 26.5.8, by modified Lentz."""
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    value = d
    for m in range(1, _FRACTION_LIMIT):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 + term * d
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = 1.0 + term / (c if abs(c) > _TINY else _TINY)
            value *= d * c
        if abs(d * c - 1.0) < _FRACTION_TOLERANCE:
            break
    return value
