"""What is measured of a drafted run: two requests, worked by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine.draft_metrics import break_even_acceptance, break_even_length, report_figures
from engine.draft_report import DraftReport, Drawn, Lossless
from engine.intervals import Samples
from engine.metrics import Evidence, noise_variation, samples
from engine.run_metrics import (
    MetricError,
    acceptance_length,
    acceptance_rate,
    check_sample,
    decode_throughput,
    draft_share,
    inter_token_latencies,
    steady_seconds,
    tpot,
)
from engine.trial import DraftCounters, DraftSample, Pair, RunSample

COUNTED = DraftCounters(steps=4, bare=1, offered=(4, 3, 2), stood=(3, 1, 1))
DRAFT = DraftSample(COUNTED, draft_seconds=0.5, verify_seconds=2.0)
"""Nine drafted, five of them stood; five steps of a request in all."""

RUN = RunSample(
    batch=2,
    prompt_tokens=10,
    output_tokens=6,
    ttft=(0.4, 0.8),
    prefill_seconds=1.0,
    step_seconds=(1.0, 1.0, 1.0),
    other_seconds=0.0,
    wall_seconds=4.0,
    output_digest="00",
    given=((3, 2, 0), (1, 0, 4)),
    finished=(3.0, 4.0),
    draft=DRAFT,
)
"""Prefill until 1.0; the first request has its six tokens at 3.0, the second at 4.0."""


def stood(*places: int) -> DraftSample:
    return msgspec.structs.replace(DRAFT, counters=msgspec.structs.replace(COUNTED, stood=places))


def changed(**parts: Any) -> RunSample:
    return msgspec.structs.replace(RUN, **parts)


def test_time_a_token_ends_with_each_requests_own_last() -> None:
    check_sample(RUN)
    assert tpot(RUN) == pytest.approx(((3.0 - 0.4) / 5 + (4.0 - 0.8) / 5) / 2)
    assert decode_throughput(RUN) == pytest.approx(2 * 5 / 3)


def test_gaps_carry_the_tokens_that_ended_them() -> None:
    """A step that gives a request nothing is part of its next gap."""
    assert inter_token_latencies(RUN, 0) == (pytest.approx((1.6, 3)), pytest.approx((1.0, 2)))
    assert inter_token_latencies(RUN, 1) == (pytest.approx((1.2, 1)), pytest.approx((2.0, 4)))
    plain = changed(given=(), finished=(), draft=None, output_tokens=4)
    assert [tokens for _, tokens in inter_token_latencies(plain, 0)] == [1, 1, 1]


def test_rates_of_a_draft() -> None:
    assert acceptance_rate(RUN) == pytest.approx(5 / 9)
    assert acceptance_length(RUN) == pytest.approx(1 + 5 / 5)
    assert draft_share(RUN) == pytest.approx(0.5 / 3)
    plain = changed(given=(), finished=(), draft=None, output_tokens=4)
    assert (acceptance_rate(plain), acceptance_length(plain), draft_share(plain)) == (0, 1, 0)


def test_a_steady_run_does_not_know_how_many_steps_a_draft_saved() -> None:
    """One second around the steps and five of the mean step, whatever stood."""
    assert steady_seconds(RUN) == pytest.approx(1.0 + 5 * 1.0)
    lucky = changed(step_seconds=(1.0,), wall_seconds=2.0)
    assert steady_seconds(lucky) == steady_seconds(RUN)
    slow = changed(step_seconds=(1.5, 1.5), wall_seconds=4.0)
    assert steady_seconds(slow) == pytest.approx(1.0 + 5 * 1.5)
    plain = changed(given=(), finished=(), draft=None, output_tokens=4)
    assert steady_seconds(plain) == plain.wall_seconds


def test_text_that_drafts_foresee_unevenly_is_no_noise() -> None:
    plain = changed(given=(), finished=(), draft=None, output_tokens=4)
    runs = [
        changed(step_seconds=(1.0,) * steps, wall_seconds=1.0 + steps) for steps in (1, 5, 2, 4)
    ]
    assert noise_variation([Pair("AB", plain, run) for run in runs], []) == 0
    steps = (1.0, 1.6, 0.7, 1.9)  # the machine's doing
    runs = [changed(step_seconds=(one,), wall_seconds=1.0 + one) for one in steps]
    assert noise_variation([Pair("AB", plain, run) for run in runs], []) > 0.25


@pytest.mark.parametrize(
    ("parts", "identity"),
    [
        ({"given": ((3, 2, 0), (1, 0, 3))}, "a draft's more"),
        ({"given": ((3, 2, 0),)}, "a draft's more"),
        ({"given": ((5, 0), (5, 0))}, "a draft's more"),
        ({"finished": (3.0,)}, "tells what it gave"),
        ({"finished": (3.0, 4.5)}, "end within the run"),
        ({"draft": msgspec.structs.replace(DRAFT, draft_seconds=1.5)}, "are of decode"),
        ({"draft": stood(3, 1)}, "stood were offered"),
        ({"draft": stood(5, 1, 1)}, "stood were offered"),
        ({"draft": stood(1, 2, 1)}, "only after those before"),
    ],
)
def test_a_drafted_run_that_cannot_be_true_is_refused(parts: dict[str, Any], identity: str) -> None:
    with pytest.raises(MetricError, match=identity):
        check_sample(changed(**parts))


PLAIN = changed(given=(), finished=(), draft=None, step_seconds=(0.5,) * 5, wall_seconds=3.5)
PAIR = Pair("AB", PLAIN, RUN)
"""A step of 0.5 s without a draft, of 1 s with one of three tokens, a sixth of it drafting."""


def test_break_even_is_where_both_take_as_long() -> None:
    """Twice the step must give two tokens: one, and one of three that are drafted."""
    assert break_even_length(PAIR) == pytest.approx(2.0)
    assert break_even_acceptance(PAIR) == pytest.approx(1 / 3)
    slow = msgspec.structs.replace(PAIR, reference=changed_plain(0.2))
    assert break_even_length(slow) == pytest.approx(5.0)
    assert break_even_acceptance(slow) is None  # three drafted give four tokens at the most
    assert break_even_acceptance(Pair("AB", PLAIN, PLAIN)) is None


def changed_plain(step: float) -> RunSample:
    return msgspec.structs.replace(PLAIN, step_seconds=(step,) * 5)


def found(*pairs: Pair, **more: Any) -> dict[str, Samples]:
    names = (
        "acceptance_rate", "acceptance_length", "draft_time_share", "break_even_length",
        "break_even_acceptance", "lossless",
    )  # fmt: skip
    return samples(Evidence(pairs, (), None, None, **more), names)  # type: ignore[arg-type]


def test_figures_of_drafts_are_there_where_somebody_drafts() -> None:
    told = {name: values.values for name, values in found(PAIR, PAIR).items()}
    assert told["acceptance_rate"] == pytest.approx((5 / 9,) * 2)
    assert told["acceptance_length"] == (2.0, 2.0)
    assert told["draft_time_share"] == pytest.approx((1 / 6,) * 2)
    assert told["break_even_length"] == pytest.approx((2.0,) * 2)
    assert "lossless" not in told
    assert found(Pair("AB", PLAIN, PLAIN)) == {}
    assert "break_even_length" not in found(Pair("AB", RUN, RUN))


def test_the_proof_is_a_share_of_the_answers() -> None:
    proof = Lossless(requests=8, identical=5, near_ties=2, widest=0.01, allowed=0.25)
    assert report_figures(DraftReport(proof)) == {"lossless": 7 / 8}
    assert report_figures(DraftReport()) == {}
    assert found(PAIR, draft=DraftReport(proof))["lossless"].values == (7 / 8,)


@pytest.mark.parametrize(("chance", "lossless"), [(0.5, 1.0), (1e-3, 1.0), (9e-4, 0.0)])
def test_the_proof_of_sampled_answers_holds_or_does_not(chance: float, lossless: float) -> None:
    drawn = Drawn(tokens=300, distance=0.1, chance=chance, least=1e-3)
    assert report_figures(DraftReport(drawn=drawn)) == {"lossless": lossless}
