"""Ceilings: best of many, never a mean, never lower after a second look."""

from __future__ import annotations

from pathlib import Path

import pytest

import engine.measure.ceilings as ceilings_module
from engine.machine import Ceilings
from engine.measure.ceilings import (
    DISPATCH_CALLS,
    FALLBACK_CACHE_BYTES,
    dispatch_cost,
    highest,
    last_level_cache_bytes,
    matmul_rate,
    measure_again,
    measure_ceilings,
    read_bandwidth,
    read_buffer_bytes,
)
from engine.trial import PhaseWork, Work


class SteppingClock:
    """Each reading is later by the next of `milliseconds`, then by the last of them for ever."""

    def __init__(self, *milliseconds: float) -> None:
        self.script = list(milliseconds)
        self.now = 0

    def __call__(self) -> int:
        step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        self.now += round(step * 1e6)
        return self.now


def test_the_best_try_counts_and_not_the_mean() -> None:
    """Tries of 9, 2 and 7 ms, a reading of the clock before and after each."""
    work: list[int] = []
    clock = SteppingClock(1, 1, 9, 1, 2, 1, 1, 7, 100)
    assert ceilings_module._best(work.append, 0.030, clock) == pytest.approx(0.002)
    assert work == [0, 1, 2]


def test_operator_cost_is_of_one_call() -> None:
    clock = SteppingClock(50, 20, 50, 10, 50, 30, 50)
    assert dispatch_cost(clock, tries=3) == pytest.approx(0.010 / DISPATCH_CALLS)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"index0": "48K", "index2": "2048K", "index3": "32M"}, 32 << 20),
        ({"index0": "48K", "index9": "nonsense"}, 48 << 10),
        ({"index3": "1G"}, 1 << 30),
        ({}, FALLBACK_CACHE_BYTES),
    ],
)
def test_the_largest_cache_is_read_from_the_system(
    tmp_path: Path, sizes: dict[str, str], expected: int
) -> None:
    for name, text in sizes.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "size").write_text(text + "\n")
    assert last_level_cache_bytes(tmp_path) == expected


def test_the_read_buffer_is_much_larger_than_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for cache in (1 << 20, 100 << 20):
        monkeypatch.setattr(ceilings_module, "last_level_cache_bytes", lambda cache=cache: cache)
        assert read_buffer_bytes() >= 4 * cache
    monkeypatch.setattr(ceilings_module, "last_level_cache_bytes", lambda: 4 << 30)
    assert read_buffer_bytes() == ceilings_module.BUFFER_HIGH


def test_rates_are_positive_and_in_their_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds no machine passes: 1 MB/s to 100 TB/s, 1 MFLOP/s to 1 EFLOP/s, 1 ns to 1 ms a call."""
    monkeypatch.setattr(ceilings_module, "read_buffer_bytes", lambda: 1 << 20)
    found = measure_ceilings(["float32", "bfloat16"], seconds=0.0)
    assert 1e6 < found.read_bytes_per_second < 1e14
    assert set(found.flops_per_second) == {"float32", "bfloat16"}
    assert all(1e6 < rate < 1e18 for rate in found.flops_per_second.values())
    assert 1e-9 <= found.dispatch_seconds < 1e-3


def test_a_slower_clock_gives_proportionally_lower_rates() -> None:
    outputs, inputs = ceilings_module.READ_SHAPE
    size = 3 * outputs * inputs * 4
    fast = read_bandwidth(size, 0.0, SteppingClock(1.0))
    slow = read_bandwidth(size, 0.0, SteppingClock(4.0))
    assert fast / slow == pytest.approx(4.0)
    assert slow == pytest.approx(size / 0.004)
    rate = matmul_rate("float32", 0.0, [(8, 16)], [4], SteppingClock(2.0))
    assert rate == pytest.approx(2 * 4 * 8 * 16 / 0.002)


@pytest.mark.parametrize(("names", "words"), [((), "at least one"), (("int5",), "int5")])
def test_unknown_or_no_precisions_are_refused(names: tuple[str, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        measure_ceilings(names)


def test_the_better_of_two_measurements_rate_by_rate() -> None:
    first = Ceilings(10.0, {"float32": 5.0}, 2.0)
    second = Ceilings(8.0, {"float32": 6.0, "bfloat16": 9.0}, 1.0)
    both = Ceilings(10.0, {"float32": 6.0, "bfloat16": 9.0}, 1.0)
    assert highest(first, second) == highest(second, first) == both


def test_a_second_look_reads_the_runs_own_size_and_never_lowers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []

    def reading(size: int, seconds: float) -> float:
        sizes.append(size)
        return 30e9 if size == 7_000_000 else 10e9

    monkeypatch.setattr(ceilings_module, "read_bandwidth", reading)
    monkeypatch.setattr(ceilings_module, "matmul_rate", lambda *_: 1e9)
    before = Ceilings(20e9, {"float32": 2e9, "bfloat16": 4e9}, 1e-6)
    work = PhaseWork("float32", Work(1, 1, 1), Work(7_000_000, 1, 1))
    again = measure_again(before, work)
    assert 7_000_000 in sizes and max(sizes) >= ceilings_module.BUFFER_LOW
    assert again == Ceilings(30e9, {"float32": 2e9, "bfloat16": 4e9}, 1e-6)
