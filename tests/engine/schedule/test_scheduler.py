"""First come, first served; prefill first; nothing that cannot fit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.cache.kv_cache import ContiguousCache
from engine.config import ScheduleConfig
from engine.schedule.scheduler import JOIN_ROWS, Plan, Scheduler, prefill_counts
from engine.schedule.sequence import SamplingParams, Sequence


def make(batch: int, chunk: int = 0, capacity: int = 64, context: int = 100) -> Scheduler:
    cache = ContiguousCache(1, batch, 1, capacity, 2, torch.float32)
    return Scheduler(ScheduleConfig(batch, chunk), cache, context)


def request(identity: int, prompt: int, new: int = 4) -> Sequence:
    return Sequence(identity, tuple(range(prompt)), SamplingParams(max_tokens=new))


def run(plan: Plan) -> list[tuple[int, int]]:
    """Pretend the plan ran; gives (id, count) of its pieces."""
    for piece in plan.pieces:
        piece.sequence.computed += piece.count
        if not piece.sequence.in_prefill:
            piece.sequence.output_ids.append(0)
    return [(piece.sequence.id, piece.count) for piece in plan.pieces]


def test_prompts_are_run_before_any_token_is_decoded() -> None:
    scheduler = make(batch=2, capacity=200, context=400)
    for identity in (0, 1):
        scheduler.add(request(identity, 100))
    for phase, pieces in (
        ("prefill", [(0, 100)]),
        ("prefill", [(1, 100)]),
        ("decode", [(0, 1), (1, 1)]),
    ):
        plan = scheduler.schedule()
        assert (plan.phase, run(plan)) == (phase, pieces)


def test_short_prompts_share_a_pass() -> None:
    scheduler = make(batch=4)
    for identity, prompt in enumerate((50, 50, 28, 1)):
        scheduler.add(request(identity, prompt))
    assert run(scheduler.schedule()) == [(0, 50), (1, 50), (2, 28)]
    assert run(scheduler.schedule()) == [(3, 1)]


def test_a_chunk_splits_a_prompt_and_fills_up_with_the_next() -> None:
    scheduler = make(batch=2, chunk=16)
    scheduler.add(request(0, 20))
    scheduler.add(request(1, 13))
    assert run(scheduler.schedule()) == [(0, 16)]
    assert run(scheduler.schedule()) == [(0, 4), (1, 12)]
    assert run(scheduler.schedule()) == [(1, 1)]
    assert scheduler.schedule().phase == "decode"


def test_requests_wait_for_a_seat_in_order_of_arrival() -> None:
    scheduler = make(batch=1)
    for identity in (5, 3, 9):
        scheduler.add(request(identity, 4))
    assert run(scheduler.schedule()) == [(5, 4)]
    assert scheduler.ids == (5, 3, 9)
    scheduler.remove(5)
    assert run(scheduler.schedule()) == [(3, 4)]
    scheduler.remove(9)
    scheduler.remove(3)
    assert not scheduler.has_work
    with pytest.raises(ValueError, match="add a request first"):
        scheduler.schedule()


@pytest.mark.parametrize(
    ("prompt", "new", "message"),
    [
        (60, 10, r"make 70; .* context is 100 tokens and a cache slot holds 64: at most 5 new"),
        (90, 1, r"make 91; .*: a prompt of at most 64 tokens would fit"),
        (10, 90, r"at most 55 new tokens would fit"),
        (99, 99, r"together must be at most 65"),
        (0, 4, r"the prompt is empty; at least one token"),
    ],
)
def test_what_can_never_fit_is_refused_with_what_would(prompt: int, new: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(batch=1).add(request(0, prompt, new))


def test_a_request_that_just_fits_is_taken() -> None:
    scheduler = make(batch=1, capacity=64)
    scheduler.add(request(0, 60, 5))  # the last token is never cached: 64 in all
    assert run(scheduler.schedule()) == [(0, 60)]


def test_the_context_bounds_a_request_even_where_the_cache_is_larger() -> None:
    with pytest.raises(ValueError, match="at most 2 new tokens"):
        make(batch=1, capacity=200, context=12).add(request(0, 10, 3))


def test_an_unknown_request_cannot_be_removed() -> None:
    with pytest.raises(ValueError, match="no request 4"):
        make(batch=1).remove(4)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=9), st.sampled_from([0, 16, 50, 128]))
def test_a_prefill_pass_keeps_order_and_its_bound(remaining: list[int], chunk: int) -> None:
    counts = prefill_counts(remaining, chunk)
    assert 1 <= len(counts) <= len(remaining)
    assert all(1 <= count <= rest for count, rest in zip(counts, remaining, strict=False))
    assert sum(counts) <= (chunk or max(JOIN_ROWS, remaining[0]))
    # Only the last prompt of a pass is ever cut short, and whole means whole.
    assert list(counts[:-1]) == remaining[: len(counts) - 1]
    if chunk == 0:
        assert counts[-1] == remaining[len(counts) - 1]


@pytest.mark.parametrize(
    "bad", [{"max_tokens": 0}, {"temperature": -1.0}, {"top_p": 0.0}, {"top_p": 1.1}]
)
def test_sampling_outside_its_range_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        SamplingParams(**{"max_tokens": 1, **bad})  # type: ignore[arg-type]
