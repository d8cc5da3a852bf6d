"""Figures of a served load against those worked out by hand, and loads that cannot be true."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from engine.load_metrics import (
    check_load,
    inter_token_gaps,
    load_ceiling_share,
    load_faster_than_physics,
    load_phase_seconds,
    load_tpot,
    load_ttft,
    mean_work,
    memory_use,
    of_kind,
    prefix_hit_rate,
    queueing,
    recomputed_share,
    request_tpot,
    throughput,
    wall_a_token,
    waste_tokens,
)
from engine.machine import Ceilings
from engine.metrics import Evidence, MetricError, noise_variation, point_estimates, samples
from engine.run_metrics import time_share
from engine.trial import (
    Flood,
    Ledger,
    LoadPair,
    LoadSample,
    MemoryAccount,
    PhaseWork,
    RequestSample,
    Work,
)

CEILINGS = Ceilings(10e9, {"bfloat16": 1e12}, 1e-6)
WORK = PhaseWork("bfloat16", Work(4e9, 1e12, 100), Work(2e9, 1e9, 100))

CHAT = RequestSample("chat", 20, 3, 0, 0.0, 1.0, 4.0, (1.0, 2.0))
DOCUMENT = RequestSample("document", 80, 2, 16, 1.0, 3.0, 5.0, (2.0,))


def load(**changes: Any) -> LoadSample:
    """Two requests, 100 prompt and 5 output tokens in 5 s: two prefill passes, two decode steps."""
    sample = LoadSample(
        requests=(CHAT, DOCUMENT),
        prefill_seconds=2.5,
        decode_seconds=2.0,
        other_seconds=0.5,
        wall_seconds=5.0,
        prefill_passes=2,
        decode_steps=2,
        prefilled_tokens=84,
        recomputed_tokens=0,
        preemptions=0,
        held_tokens=60.0,
        reserved_tokens=80.0,
        peak_live_tokens=90,
        most_running=2,
        copies=0,
        output_digest="",
        mean_running=1.25,
        work=WORK,
    )
    return msgspec.structs.replace(sample, **changes)


def test_a_request_s_own_figures() -> None:
    assert request_tpot(CHAT) == (4.0 - 1.0) / 2
    assert request_tpot(DOCUMENT) == 2.0
    assert of_kind(load(), "document") == (DOCUMENT,) and len(of_kind(load())) == 2
    assert inter_token_gaps(load()) == (1.0, 2.0, 2.0)
    assert inter_token_gaps(load(), "chat") == (1.0, 2.0)


def test_a_load_s_figures() -> None:
    assert throughput(load()) == 5 / 5.0
    assert load_ttft(load()) == (1.0 + 3.0) / 2
    assert load_tpot(load()) == (1.5 + 2.0) / 2
    assert queueing(load()) == 0.5
    assert memory_use(load()) == 0.75
    assert waste_tokens(load()) == 20 / 1.25
    assert prefix_hit_rate(load()) == 16 / 100
    assert recomputed_share(load(recomputed_tokens=21)) == 0.25
    assert wall_a_token(load()) == 5.0 / 105
    shares = [time_share(load(), phase) for phase in ("prefill", "decode", "other")]  # type: ignore[arg-type]
    assert shares == pytest.approx([0.5, 0.4, 0.1])


def test_the_machine_s_share_of_a_load() -> None:
    """Prefill: 1e12 operations take 1 s of 2.5 (its bytes 0.4 s); a step: 2e9 bytes 0.2 s of 1."""
    assert load_phase_seconds(load(), "decode") == 1.0
    assert load_ceiling_share(load(), CEILINGS, "prefill") == pytest.approx(1.0 / 2.5)
    assert load_ceiling_share(load(), CEILINGS, "decode") == pytest.approx(0.2)
    assert load_faster_than_physics(load(), CEILINGS) is None
    fast = load(prefill_seconds=0.5)
    assert load_faster_than_physics(fast, CEILINGS) == ("prefill", pytest.approx(2.0))
    uncounted = load(work=None)
    assert load_faster_than_physics(uncounted, CEILINGS) is None
    with pytest.raises(MetricError, match="not counted"):
        load_ceiling_share(uncounted, CEILINGS, "decode")


def test_the_mean_of_counted_work_leaves_out_what_was_not_counted() -> None:
    double = PhaseWork("bfloat16", Work(8e9, 2e12, 300), Work(4e9, 2e9, 300))
    found = mean_work([load(), load(work=None), load(work=double)])
    assert found == PhaseWork("bfloat16", Work(6e9, 1.5e12, 200), Work(3e9, 1.5e9, 200))
    assert mean_work([load(work=None)]) is None


def test_a_true_load_passes_its_identities() -> None:
    check_load(load())


def test_a_load_with_a_preemption_recomputes_and_still_adds_up() -> None:
    """The document was put back once: 70 of its tokens came a second time, and its last one."""
    back = msgspec.structs.replace(DOCUMENT, preemptions=1)
    again = load(
        requests=(CHAT, back), preemptions=1, recomputed_tokens=70, prefilled_tokens=84 + 71
    )
    check_load(again)
    with pytest.raises(MetricError, match="computed or found"):
        check_load(msgspec.structs.replace(again, prefilled_tokens=84 + 70))


def request(**changes: Any) -> dict[str, Any]:
    return {"requests": (CHAT, msgspec.structs.replace(DOCUMENT, **changes))}


@pytest.mark.parametrize(
    ("changes", "identity"),
    [
        ({"requests": ()}, "has requests"),
        ({"wall_seconds": 6.0}, "wall = prefill"),
        ({"other_seconds": -0.5, "decode_seconds": 3.0}, "no phase claims more"),
        ({"decode_seconds": math.nan}, "durations are positive"),
        ({"wall_seconds": 7.0, "other_seconds": 2.5}, "ends with its last token"),
        ({"prefill_passes": 85}, "every prefill pass"),
        ({"decode_steps": 4}, "every decode step"),
        ({"decode_steps": 1}, "one token a step"),
        ({"most_running": 3}, "only requests of the load"),
        ({"mean_running": 2.5}, "peak is at least the mean"),
        ({"held_tokens": 81.0}, "what is held was set aside"),
        ({"peak_live_tokens": 59}, "peak is at least the mean"),
        ({"preemptions": 1}, "preemptions add up"),
        ({"recomputed_tokens": 85}, "recomputed rows"),
        ({"recomputed_tokens": 1, "prefilled_tokens": 85}, "nothing is computed twice"),
        ({"prefilled_tokens": 100}, "computed or found"),
        ({"requests": (DOCUMENT, CHAT)}, "finds an empty cache"),
        (request(gaps=(1.0, 1.0)), "one gap a token"),
        (request(gaps=(1.5,)), "finished = TTFT"),
        (request(gaps=(-2.0,), ttft=7.0), "gaps are positive"),
        (request(queued=3.0), "queued, then first token"),
        (request(cached_tokens=80) | {"prefilled_tokens": 20}, "last prompt token"),
        (request(output_tokens=1, gaps=()), "one token a step|a prompt and an answer"),
    ],
)
def test_a_load_that_cannot_be_true_is_refused(changes: dict[str, Any], identity: str) -> None:
    with pytest.raises(MetricError, match=identity):
        check_load(load(**changes))


def evidence(**changes: Any) -> Evidence:
    quick = load(wall_seconds=2.5, held_tokens=76.0)
    fields: dict[str, Any] = {
        "pairs": (),
        "singles": (),
        "work": WORK,
        "ceilings": CEILINGS,
        "load_pairs": (LoadPair("AB", load(), quick), LoadPair("BA", load(), load())),
    }
    return Evidence(**{**fields, **changes})


def test_a_served_trial_s_metrics_are_of_its_loads() -> None:
    seen = samples(evidence())
    assert seen["throughput_ratio"].values == pytest.approx((2.0, 1.0))
    assert seen["throughput"].values == pytest.approx((2.0, 1.0))
    assert seen["ttft_ratio"].values == seen["tpot_ratio"].values == (1.0, 1.0)
    assert seen["memory_use"].values == pytest.approx((0.95, 0.75))
    assert seen["reference_use"].values == pytest.approx((75.0, 75.0))
    assert seen["prefix_hit_rate"].values == pytest.approx((0.16, 0.16))
    assert seen["decode_ceiling_share"].values == pytest.approx((0.2, 0.2))
    points = point_estimates(evidence())
    assert points["throughput_ratio"] == pytest.approx(math.sqrt(2))
    assert points["live_tokens"] == 90
    assert not {"decode_throughput_ratio", "decode_cost_ratio", "kl"} & set(points)


def test_a_load_whose_work_was_not_counted_has_no_share_of_a_ceiling() -> None:
    bare = evidence(load_pairs=(LoadPair("AB", load(work=None), load(work=None)),))
    assert "decode_ceiling_share" not in samples(bare)


def test_noise_of_loads_is_of_wall_time_a_token() -> None:
    """A load twice as long that took twice as long is no noise; one that took 3 times is."""
    twice = (
        msgspec.structs.replace(CHAT, prompt_tokens=125),
        DOCUMENT,
    )
    longer = load(requests=twice, wall_seconds=10.0)
    assert longer.prompt_tokens + longer.output_tokens == 210
    steady = [LoadPair("AB", load(), load()), LoadPair("BA", load(), longer)]
    assert noise_variation((), (), steady) == pytest.approx(0.0)
    late = [steady[0], LoadPair("BA", load(), load(wall_seconds=15.0))]
    assert noise_variation((), (), late) == pytest.approx(math.sqrt(2) * 5 / 10)


LEDGER = Ledger(1000, {"weights": 500, "kv": 300, "activations": 50, "scratch": 50}, 200, 40)


def test_memory_figures_are_counted_and_exact() -> None:
    """A reference whose 4,096 slots take 94,371,840 bytes holds 2,048 tokens in 47.2 MB."""
    seen = samples(
        evidence(
            load_pairs=(),
            ledger=LEDGER,
            reference_memory=MemoryAccount({}, {"weights": 1, "kv": 94_371_840}, 0, 4096),
        )
    )
    assert seen["vessel_share"].values == (0.9,)
    assert seen["kv_request_mb"].values == pytest.approx((47.18592,))
    assert {seen[name].statistic for name in ("vessel_share", "kv_request_mb")} == {"exact"}
    assert "live_tokens" not in seen


def test_after_a_flood_the_live_tokens_are_those_of_its_moment() -> None:
    flood = Flood(LEDGER, 100, 60, 3, 5, 3)
    seen = samples(evidence(load_pairs=(), ledger=LEDGER, flood=flood))
    assert seen["live_tokens"].values == (40.0,)
    assert set(seen) == {"live_tokens", "vessel_share"}


def test_without_a_budget_there_is_no_share_of_it() -> None:
    free = msgspec.structs.replace(LEDGER, budget=None)
    assert "vessel_share" not in samples(evidence(ledger=free))
