"""Are numbers spread evenly between 0 and 1? The test of Kolmogorov and Smirnov. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Sequence

_TERMS = 100


def distance(places: Sequence[float]) -> float:
    """The farthest that the share of `places` up to any point lies from that point: 0 to 1.

    Raises:
        ValueError: no number, or one outside 0 to 1.
    """
    if not places or not all(0.0 <= place <= 1.0 for place in places):
        raise ValueError("one number at the least, and all between 0 and 1")
    count = len(places)
    return max(
        max((rank + 1) / count - place, place - rank / count)
        for rank, place in enumerate(sorted(places))
    )


def chance_of(distance: float, count: int) -> float:
    """How often `count` numbers drawn evenly lie as far from it, or farther (the p-value).

    Kolmogorov's limit with Stephens' correction for few numbers (J. R. Statist. Soc. B 32, 1970):
    right to two digits from some ten numbers on.
    """
    root = math.sqrt(count)
    reach = (root + 0.12 + 0.11 / root) * distance
    if reach < 0.2:  # the series does not converge there, and its sum is 1
        return 1.0
    terms = [math.exp(-2 * (place * reach) ** 2) for place in range(1, _TERMS)]
    return min(max(2 * (math.fsum(terms[::2]) - math.fsum(terms[1::2])), 0.0), 1.0)
