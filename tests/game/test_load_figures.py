"""Figures of served loads, by kind of request, against sums done by hand."""

from __future__ import annotations

from statistics import fmean, median

import pytest
from canned_memory import make_hold
from canned_serving import make_serve

from engine.trial import LoadSample, RequestSample
from game.load_figures import build_figures, served_figures


def request(kind: str, ttft: float, gaps: tuple[float, ...], cached: int = 0) -> RequestSample:
    return RequestSample(
        kind=kind,  # type: ignore[arg-type]
        prompt_tokens=100,
        output_tokens=len(gaps) + 1,
        cached_tokens=cached,
        queued=ttft / 2,
        ttft=ttft,
        finished=ttft + sum(gaps),
        gaps=gaps,
    )


def load(*requests: RequestSample, **counts: int) -> LoadSample:
    fields = {"preemptions": 0, "recomputed_tokens": 0, "copies": 0, "most_running": 2, **counts}
    return LoadSample(
        requests=requests,
        prefill_seconds=1.0,
        decode_seconds=2.0,
        other_seconds=0.0,
        wall_seconds=3.0,
        prefill_passes=2,
        decode_steps=4,
        prefilled_tokens=200,
        held_tokens=90.0,
        reserved_tokens=100.0,
        peak_live_tokens=95,
        output_digest="",
        mean_running=2.0,
        **fields,
    )


CHAT, DOCUMENT = request("chat", 1.0, (0.1, 0.3), 50), request("document", 2.0, (0.2,))


def test_each_kind_is_told_by_itself() -> None:
    chat, document = build_figures([load(CHAT, DOCUMENT)]).kinds
    assert (chat.kind, chat.requests, document.requests) == ("chat", 1, 1)
    assert (chat.ttft, chat.queueing) == (1.0, 0.5)
    assert chat.tpot == pytest.approx(0.4 / 2) and document.tpot == pytest.approx(0.2)
    assert (chat.itl_tail, chat.itl) == ("max of 2", 0.3)


def test_a_kind_that_was_not_drawn_is_not_told() -> None:
    assert [kind.kind for kind in build_figures([load(CHAT)]).kinds] == ["chat"]


def test_a_load_as_a_whole() -> None:
    loads = [load(CHAT, DOCUMENT, preemptions=n, copies=3) for n in (0, 2, 5)]
    figures = build_figures(loads)
    assert figures.throughput == pytest.approx(5 / 3.0)
    assert figures.memory_use == 0.9 and figures.prefix_hit_rate == 50 / 200
    assert figures.waste_tokens == pytest.approx(10 / 2.0)
    assert (figures.preemptions, figures.copies) == (2, 3)


def test_the_tail_is_of_all_loads_together() -> None:
    """Eight loads of a dozen chats have enough gaps for p99, one has not."""
    result = make_serve("pass")
    found = served_figures(result)
    assert found is not None
    candidate, reference = found
    assert {kind.itl_tail for kind in candidate.kinds} == {"p99"}
    gaps = sorted(
        gap
        for pair in result.load_pairs
        for one in pair.candidate.requests
        if one.kind == "chat"
        for gap in one.gaps
    )
    assert candidate.kinds[0].itl in gaps
    share = sum(gap <= candidate.kinds[0].itl for gap in gaps) / len(gaps)
    assert 0.99 <= share < 0.9925
    waits = [one.queued for pair in result.load_pairs for one in pair.reference.requests]
    kinds = reference.kinds
    mean = sum(kind.queueing * kind.requests for kind in kinds) / sum(k.requests for k in kinds)
    assert mean == pytest.approx(fmean(waits))
    held = median(
        pair.candidate.held_tokens / pair.candidate.reserved_tokens for pair in result.load_pairs
    )
    assert candidate.memory_use == pytest.approx(held)


def test_a_trial_that_served_nothing_has_no_figures() -> None:
    assert served_figures(make_hold("pass")) is None
