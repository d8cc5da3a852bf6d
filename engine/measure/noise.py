"""This machine's noise: how far two equal builds seem apart, and when to measure it anew."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import stdev

from engine.trial import Fault

NOISE_FAULTS = frozenset({"noise", "unstable"})
TRIPS_BEFORE_MEASURING_AGAIN = 2


def pair_noise(runs: Sequence[float]) -> float:
    """Standard deviation of ln(B / A) over pairs of equal runs taken in the order A B B A A B ...

    `runs` are seconds; two make a pair.

    Raises:
        ValueError: fewer than two whole pairs, or a duration that is not positive.
    """
    if len(runs) < 4 or len(runs) % 2:
        raise ValueError(f"noise needs at least two whole pairs of runs, not {len(runs)} runs")
    if min(runs) <= 0:
        raise ValueError("a run's duration is positive")
    logs = []
    for pair, (first, second) in enumerate(zip(runs[::2], runs[1::2], strict=True)):
        gap = math.log(second / first)
        logs.append(gap if pair % 2 == 0 else -gap)
    return stdev(logs)


class NoiseWatch:
    """Counts trials in a row that noise spoiled; after two the machine is to be measured again.

    Something has changed since the calibration: another program runs, or the laptop left its
    charger, and the calibrated threads and wait policy may be the wrong ones now.
    """

    def __init__(self, limit: int = TRIPS_BEFORE_MEASURING_AGAIN) -> None:
        self._limit = limit
        self._trips = 0

    def saw(self, faults: Iterable[Fault]) -> bool:
        """Take in one trial's faults; True where the profile should be measured again now."""
        self._trips = self._trips + 1 if {f.code for f in faults} & NOISE_FAULTS else 0
        if self._trips < self._limit:
            return False
        self._trips = 0
        return True
