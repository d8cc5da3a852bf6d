"""The serving benchmark counts fairly: same loads on both sides, in turn, real tokens only."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from pathlib import Path

import pytest

from engine.config import EngineConfig, ScheduleConfig, WorkloadConfig
from engine.load import draw_load

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def serving():
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("serving", FOLDER / "serving.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["serving"] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))
        sys.modules.pop("serving", None)


MIXED = EngineConfig(
    WorkloadConfig(prompt=96, output=12, mix="mixed", requests=9, system=16), ScheduleConfig(9)
)


def test_the_words_of_a_load_have_the_drawn_lengths_and_share_their_beginning(serving):
    requests = serving.draw_requests(MIXED, 3)
    assert [len(prompt) for _, prompt in requests] == [one.prompt for one in draw_load(MIXED, 3)]
    beginnings = {tuple(prompt[:16]) for _, prompt in requests}
    assert len(beginnings) == 1
    assert beginnings != {tuple(serving.draw_requests(MIXED, 4)[0][1][:16])}


def test_both_sides_serve_each_load_in_abba_order(serving):
    served = []

    def side(name, seconds):
        def serve(requests):
            served.append((name, tuple(len(prompt) for _, prompt in requests)))
            return seconds

        return serve

    pairs = serving.load_pairs(
        side("B", 2.0), side("A", 4.0), lambda seed: serving.draw_requests(MIXED, seed), 4
    )
    timed = served[4:]
    assert [name for name, _ in timed] == ["A", "B", "B", "A", "A", "B", "B", "A"]
    assert all(timed[i][1] == timed[i + 1][1] for i in range(0, 8, 2))
    for seed, (candidate, reference) in enumerate(pairs):
        tokens = sum(shape.output for shape in draw_load(MIXED, seed))
        assert candidate == pytest.approx(tokens / 2.0)
        assert reference == pytest.approx(tokens / 4.0)


@pytest.mark.parametrize(
    ("target", "met"),
    [((">=", 2.0), True), ((">=", 2.1), False), (("<=", 2.0), True), (None, None)],
)
def test_a_target_is_held_against_the_median_ratio(serving, target, met):
    pairs = [(1.0, 1.0), (4.0, 2.0), (9.0, 3.0)]
    row = serving.summarise("steps", "name", pairs, "ms", 1e3, target, "path")
    assert row.ratio == statistics.median([1.0, 2.0, 3.0])
    assert row.range == (1.0, 3.0)
    assert (row.candidate, row.reference) == (4000.0, 2000.0)
    assert row.met is met
