"""Served loads: what is drawn, from what, and within which bounds."""

from __future__ import annotations

from fractions import Fraction
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import CacheConfig, EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.load import LEAST_OUTPUT, LEAST_OWN, draw_load, mean_load, request_count


def config(
    prompt: int = 640,
    output: int = 48,
    requests: int = 16,
    system: int = 96,
    mix: str = "mixed",
    batch: int = 16,
) -> EngineConfig:
    return EngineConfig(
        WorkloadConfig(prompt, output, mix, requests, system), ScheduleConfig(batch)
    )


@st.composite
def mixed_loads(draw: st.DrawFn) -> EngineConfig:
    system = draw(st.integers(0, 300))
    return config(
        system + draw(st.integers(LEAST_OWN, 2000)),
        draw(st.integers(LEAST_OUTPUT, 200)),
        draw(st.integers(1, 64)),
        system,
    )


def test_a_uniform_load_is_as_long_as_the_workload_says() -> None:
    load = draw_load(config(100, 10, requests=5, system=0, mix="uniform"), seed=3)
    assert [(shape.prompt, shape.output) for shape in load] == [(100, 10)] * 5


def test_no_number_of_requests_means_as_many_as_the_batch() -> None:
    assert request_count(config(requests=0, batch=7)) == 7
    assert len(draw_load(config(requests=0, batch=7), 0)) == 7
    assert len(draw_load(config(requests=9, batch=7), 0)) == 9


@given(mixed_loads(), st.integers(0, 2**31))
def test_every_length_lies_within_its_share_of_the_longest(config: EngineConfig, seed: int) -> None:
    work = config.workload
    own = work.prompt - work.system
    for shape in draw_load(config, seed):
        part = shape.prompt - work.system
        low, high = (Fraction(1, 2), 1) if shape.kind == "document" else (Fraction(1, 16), 1 / 6)
        assert own * low - Fraction(1, 2) <= part <= own * high + 0.5
        assert 1 <= part <= own
        assert max(2, work.output / 2 - 0.5) <= shape.output <= work.output


@given(mixed_loads(), st.integers(0, 2**31))
def test_every_third_request_is_a_document(config: EngineConfig, seed: int) -> None:
    kinds = [shape.kind for shape in draw_load(config, seed)]
    assert kinds.count("document") == -(-len(kinds) // 3)


@given(mixed_loads(), st.integers(0, 2**31))
def test_a_load_depends_on_the_seed_and_the_workload_alone(config: EngineConfig, seed: int) -> None:
    other = EngineConfig(
        config.workload,
        ScheduleConfig(batch=3, prefill_chunk=64),
        RunConfig("bfloat16", 2),
        CacheConfig("paged", 1, 8, "on"),
    )
    assert draw_load(config, seed) == draw_load(other, seed)


def test_another_seed_draws_another_load() -> None:
    loads = {draw_load(config(), seed) for seed in range(50)}
    assert len(loads) == 50


def test_a_seed_draws_the_same_load_on_every_python() -> None:
    """Written down once: a record's seed must give its load again years later."""
    load = draw_load(config(requests=4), seed=7)
    assert [(shape.kind, shape.prompt, shape.output) for shape in load] == [
        ("chat", 175, 26),
        ("document", 558, 36),
        ("document", 611, 28),
        ("chat", 172, 26),
    ]


def test_draws_scatter_about_the_mean_load() -> None:
    drawn = [shape for seed in range(400) for shape in draw_load(config(), seed)]
    mean = mean_load(config())
    assert len(mean) == 16
    for kind in ("chat", "document"):
        prompts = [shape.prompt for shape in drawn if shape.kind == kind]
        outputs = [shape.output for shape in drawn if shape.kind == kind]
        (expected,) = {(s.prompt, s.output) for s in mean if s.kind == kind}
        assert fmean(prompts) == pytest.approx(expected[0], rel=0.01)
        assert fmean(outputs) == pytest.approx(expected[1], rel=0.01)
    assert fmean(shape.kind == "document" for shape in drawn) == 6 / 16


def test_slots_of_the_longest_length_stand_mostly_empty_under_the_paging_halls_load() -> None:
    """Prompts of 288 tokens in the mean, half an answer more: 44 % of slots of 640 + 48."""
    drawn = [shape for seed in range(400) for shape in draw_load(config(), seed)]
    held = fmean(shape.prompt + shape.output / 2 for shape in drawn)
    assert held / (640 + 48) == pytest.approx(0.444, abs=0.01)
