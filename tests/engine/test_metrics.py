"""Metric definitions against figures worked out by hand."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from engine.machine import Ceilings
from engine.metrics import (
    METRICS,
    Evidence,
    MetricError,
    binding,
    ceiling_share,
    check_sample,
    decode_cost_ratio,
    decode_throughput,
    faster_than_physics,
    floor_seconds,
    inter_token_latencies,
    noise_variation,
    physical_floor,
    point_estimates,
    prefill_throughput,
    samples,
    tail,
    time_share,
    tpot,
    ttft,
    variation,
)
from engine.quality_report import Probes, Quality
from engine.quantised import Quantised
from engine.trial import Ledger, MemoryAccount, Pair, PhaseWork, RunSample, Work

CEILINGS = Ceilings(10e9, {"float32": 1e12}, 1e-6)
WORK = PhaseWork(
    "float32",
    prefill=Work(bytes_moved=1e9, flops=4e11, dispatches=1000),
    decode=Work(bytes_moved=1e8, flops=2e9, dispatches=500),
)


def run(**changes: Any) -> RunSample:
    """Two requests of 10 prompt and 5 output tokens: 1 s other, 4 s prefill, 4 steps of 0.5 s."""
    sample = RunSample(
        batch=2,
        prompt_tokens=10,
        output_tokens=5,
        ttft=(3.0, 5.0),
        prefill_seconds=4.0,
        step_seconds=(0.5, 0.5, 0.5, 0.5),
        other_seconds=1.0,
        wall_seconds=7.0,
        output_digest="",
    )
    return msgspec.structs.replace(sample, **changes)


def test_ttft_is_the_mean_over_requests() -> None:
    assert ttft(run()) == 4.0


def test_tpot_is_end_to_end_less_ttft_over_the_tokens_after_the_first() -> None:
    first, second = (7.0 - 3.0) / 4, (7.0 - 5.0) / 4
    assert tpot(run()) == (first + second) / 2


def test_tpot_equals_the_step_when_every_first_token_comes_with_the_end_of_prefill() -> None:
    assert tpot(run(ttft=(5.0, 5.0))) == 0.5


def test_tpot_needs_two_tokens() -> None:
    with pytest.raises(MetricError, match="at least 2"):
        tpot(run(output_tokens=1, step_seconds=()))


def test_a_requests_gaps_add_up_to_its_end_less_its_first_token() -> None:
    for request, first in enumerate((3.0, 5.0)):
        gaps = inter_token_latencies(run(), request)
        assert len(gaps) == 4 and all(tokens == 1 for _, tokens in gaps)
        assert sum(seconds for seconds, _ in gaps) == pytest.approx(7.0 - first)


def test_decode_throughput_does_not_count_the_tokens_that_prefill_gave() -> None:
    assert decode_throughput(run()) == 2 * 4 / 2.0


def test_prefill_throughput_counts_prompt_tokens() -> None:
    assert prefill_throughput(run()) == 20 / 4.0


def test_decode_cost_is_tpot_over_prefill_seconds_a_token() -> None:
    assert decode_cost_ratio(run(ttft=(5.0, 5.0))) == pytest.approx(0.5 / (4.0 / 20))


def test_time_shares_sum_to_one() -> None:
    shares = [time_share(run(), phase) for phase in ("prefill", "decode", "other")]  # type: ignore[arg-type]
    assert shares == pytest.approx([4 / 7, 2 / 7, 1 / 7]) and sum(shares) == pytest.approx(1)


def test_floors_and_what_binds() -> None:
    floors = floor_seconds(WORK.prefill, "float32", CEILINGS)
    assert floors == pytest.approx({"bandwidth": 0.1, "compute": 0.4, "launch overhead": 1e-3})
    assert binding(WORK.prefill, "float32", CEILINGS) == ("compute", pytest.approx(0.4))
    assert binding(WORK.decode, "float32", CEILINGS) == ("bandwidth", pytest.approx(0.01))
    calls = Work(bytes_moved=1, flops=1, dispatches=1e6)
    assert binding(calls, "float32", CEILINGS)[0] == "launch overhead"


def test_operator_calls_are_no_physical_floor() -> None:
    calls = Work(bytes_moved=1e7, flops=1, dispatches=1e9)
    assert physical_floor(calls, "float32", CEILINGS) == pytest.approx(1e-3)


def test_an_unmeasured_precision_is_named() -> None:
    with pytest.raises(MetricError, match="bfloat16; measured: float32"):
        floor_seconds(WORK.decode, "bfloat16", CEILINGS)


def test_ceiling_share_and_the_run_that_beats_physics() -> None:
    assert ceiling_share(run(), WORK, CEILINGS, "decode") == pytest.approx(0.01 / 0.5)
    assert faster_than_physics(run(), WORK, CEILINGS) is None
    at_slack = run(step_seconds=(0.01 / 1.04,) * 4)
    beyond = run(step_seconds=(0.01 / 1.06,) * 4)
    assert faster_than_physics(at_slack, WORK, CEILINGS) is None
    assert faster_than_physics(beyond, WORK, CEILINGS) == ("decode", pytest.approx(1.06))


def test_variation_is_deviation_over_mean() -> None:
    assert variation([1.0, 1.0, 1.0]) == 0.0 and variation([4.0]) == 0.0
    assert variation([9.0, 11.0]) == pytest.approx(math.sqrt(2) / 10)


def test_noise_is_of_the_noisier_build_and_no_outlier_is_dropped() -> None:
    walls = [7.0] * 7 + [21.0]
    pairs = [Pair("AB", run(), run(wall_seconds=wall)) for wall in walls]
    mean = sum(walls) / 8
    deviation = math.sqrt(sum((wall - mean) ** 2 for wall in walls) / 7)
    assert noise_variation(pairs, ()) == pytest.approx(deviation / mean)


@pytest.mark.parametrize(
    ("count", "name", "value"),
    [
        (1, "max of 1", 1),
        (63, "max of 63", 63),
        (64, "p90", 58),
        (129, "p90", 117),
        (130, "p95", 124),
        (661, "p95", 628),
        (662, "p99", 656),
    ],
)
def test_a_tail_is_named_by_what_its_samples_can_say(count: int, name: str, value: int) -> None:
    """Nearest rank: the ceil(p n)-th smallest of 1..n is ceil(p n) itself."""
    shuffled = [float(1 + (7919 * index) % count) for index in range(count)]
    if len(set(shuffled)) == count:
        assert tail(shuffled) == (name, float(value))
    assert tail([float(v) for v in range(count, 0, -1)]) == (name, float(value))


def test_a_tail_of_nothing_is_refused() -> None:
    with pytest.raises(MetricError, match="at least one"):
        tail([])


def test_a_true_sample_passes_its_identities() -> None:
    check_sample(run())


@pytest.mark.parametrize(
    ("changes", "identity"),
    [
        ({"ttft": (3.0,)}, "one TTFT a request"),
        ({"step_seconds": (0.5,) * 3, "other_seconds": 1.5}, "one decode step a token"),
        ({"wall_seconds": 8.0}, "wall = prefill"),
        ({"other_seconds": -1.0, "prefill_seconds": 6.0}, "no phase claims more"),
        ({"ttft": (3.0, 5.5)}, "first tokens come before"),
        ({"prefill_seconds": 0.0, "other_seconds": 5.0}, "durations are positive"),
        ({"ttft": (math.nan, 5.0)}, "durations are positive"),
        ({"output_tokens": 1, "step_seconds": ()}, "at least 2 tokens"),
        ({"batch": 0, "ttft": ()}, "requests and prompts"),
    ],
)
def test_a_sample_that_cannot_be_true_is_refused(changes: dict[str, Any], identity: str) -> None:
    with pytest.raises(MetricError, match=identity):
        check_sample(run(**changes))


def evidence(**changes: Any) -> Evidence:
    fast = run(ttft=(1.5, 2.5), prefill_seconds=2.0, other_seconds=0.5, wall_seconds=4.5)
    fields: dict[str, Any] = {
        "pairs": (Pair("AB", run(), fast), Pair("BA", run(), run())),
        "singles": (),
        "work": WORK,
        "ceilings": CEILINGS,
        "memory": MemoryAccount({"weights": 90}, {"weights": 100, "kv": 50}, 1),
        "reference_memory": MemoryAccount({"weights": 90}, {"weights": 200, "kv": 100}, 1),
        "quality": Quality(0.01, 0.9, 1.02, 2048, ""),
    }
    return Evidence(**{**fields, **changes})


def test_ratios_are_candidate_over_reference_pair_by_pair() -> None:
    seen = samples(evidence())
    assert seen["ttft_ratio"].values == pytest.approx((0.5, 1.0))
    assert seen["prefill_throughput_ratio"].values == pytest.approx((2.0, 1.0))
    assert seen["decode_throughput_ratio"].values == pytest.approx((1.0, 1.0))
    assert seen["memory_ratio"].values == pytest.approx((0.5,))
    points = point_estimates(evidence())
    assert points["ttft_ratio"] == pytest.approx(math.sqrt(0.5))
    assert points["kl"] == 0.01 and points["top1"] == 0.9


SERVED = {
    "throughput_ratio", "throughput", "memory_use", "reference_use", "prefix_hit_rate", "queueing",
    "recomputed_share",
}  # fmt: skip
"""Of loads alone: see `test_load_metrics`."""


def test_every_metric_of_runs_has_samples_in_a_full_trial() -> None:
    full = evidence(
        pairs=(Pair("AB", run(peak_live_tokens=24), run(peak_live_tokens=28)),),
        reference_memory=MemoryAccount({}, {"weights": 200, "kv": 100}, 1, kv_tokens=50),
        ledger=Ledger(400, {"weights": 100, "kv": 50}, 28, 28),
        memory=MemoryAccount({}, {"weights": 100, "kv": 50}, 1, weight_elements=160),
        quality=Quality(0.01, 0.9, 1.02, 2048, "", probes=Probes(120, 80, 60)),
        quantised=Quantised("awq", 4, 5.0, 9.0, False, 4096, 30, 30),
    )
    words = {name for name, metric in METRICS.items() if metric.kind == "word"}
    drafted = {
        "acceptance_rate", "acceptance_length", "draft_time_share", "break_even_length",
        "break_even_acceptance", "lossless",
    }  # fmt: skip
    assert set(samples(full)) == set(METRICS) - words - SERVED - drafted
    assert samples(full)["live_tokens"].values == (28.0,)
    assert samples(full)["average_bits"].values == (5.0,)
    assert samples(full)["weight_share"].values == (100 / 320,)
    assert samples(full)["probes_right"].values == (0.75,)
    gain, slower = samples(full)["four_bit_gain"].values, samples(full)["tpot_ratio"].values
    assert gain == pytest.approx([1 / ratio for ratio in slower])


def test_the_gain_of_four_bits_is_told_of_no_other_width() -> None:
    wide = Quantised("rtn", 8, 8.0, 1.0, False, 0, 0, 30)
    assert "four_bit_gain" not in samples(evidence(quantised=wide))
    assert "four_bit_gain" not in samples(evidence())
    unasked = Quality(0.01, 0.9, 1.02, 2048, "", probes=Probes(120, 0, 0))
    assert "probes_right" not in samples(evidence(quality=unasked))


def test_a_timeline_has_levels_and_no_ratios_to_another_build() -> None:
    seen = samples(evidence(pairs=(), singles=(run(), run()), quality=None, reference_memory=None))
    assert seen["decode_cost_ratio"].values == pytest.approx((decode_cost_ratio(run()),) * 2)
    assert seen["tpot"].values == (tpot(run()),) * 2
    assert not {"tpot_ratio", "memory_ratio", "kl"} & set(seen)


def test_decode_cost_is_the_reference_builds() -> None:
    slow = run(step_seconds=(5.0,) * 4, wall_seconds=25.0)
    seen = samples(evidence(pairs=(Pair("AB", run(), slow),)))
    assert seen["decode_cost_ratio"].values == pytest.approx((decode_cost_ratio(run()),))
    assert seen["tpot"].values == pytest.approx((tpot(slow),))


def test_an_unknown_metric_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(MetricError, match="tpot_ratio"):
        samples(evidence(), ["tpott"])


@pytest.mark.parametrize("module", ["engine.metrics", "engine.intervals", "engine.price"])
def test_importing_brings_neither_torch_nor_numpy(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'torch', 'numpy', 'scipy'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
