"""Numbers as they are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from game.widgets.figures import duration, operations, plain_number, share, size, times


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.000482, "482 us"), (0.0164, "16.4 ms"), (1.0, "1 s"), (0.9999, "1 s"), (75, "75 s"),
     (0, "0 s"), (3e-9, "3 ns"), (0.4e-9, "0.4 ns")],
)  # fmt: skip
def test_durations(value: float, text: str) -> None:
    assert duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(269e6, "269 MB"), (1.21e9, "1.21 GB"), (23_040, "23 kB"), (128, "128 B"), (0, "0 B")],
)
def test_sizes_are_in_powers_of_a_thousand(value: float, text: str) -> None:
    assert size(value) == text


def test_counts_shares_and_ratios() -> None:
    assert operations(2.3e12) == "2.3 T" and operations(600) == "600"
    assert share(0.713) == "71 %" and share(1.0) == "100 %" and share(0.0149) == "1.5 %"
    assert times(34.2) == "34" and times(1.62) == "1.6" and times(172.4) == "172"
    assert plain_number(1234.5) == "1,230" and plain_number(float("inf")) == "inf"


@given(st.floats(1e-12, 1e15))
def test_three_figures_are_within_half_a_per_cent(value: float) -> None:
    assert float(plain_number(value).replace(",", "")) == pytest.approx(value, rel=0.0051)
