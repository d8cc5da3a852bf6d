"""First come, first served; prefill first; nothing that cannot fit."""

from __future__ import annotations

import pytest
from block_book import BlockBook
from hypothesis import given
from hypothesis import strategies as st

from engine.config import ScheduleConfig
from engine.schedule.plan import JOIN_ROWS, Plan, prefill_counts
from engine.schedule.scheduler import NoRoom, Scheduler
from engine.schedule.sequence import SamplingParams, Sequence


def slots(batch: int, capacity: int = 64) -> BlockBook:
    """Every sequence has all its room from the start: one block as large as it can become."""
    return BlockBook(batch, capacity, capacity)


def make(batch: int, chunk: int = 0, capacity: int = 64, context: int = 100) -> Scheduler:
    return Scheduler(ScheduleConfig(batch, chunk), slots(batch, capacity), context)


def request(identity: int, prompt: int, new: int = 4) -> Sequence:
    return Sequence(identity, tuple(range(prompt)), SamplingParams(max_tokens=new))


def run(plan: Plan) -> list[tuple[int, int]]:
    """Pretend the plan ran; gives (id, count) of its pieces."""
    for piece in plan.pieces:
        speaks = piece.speaks
        piece.sequence.advance(piece.count)
        if speaks:
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
        (60, 10, r"make 70; .* is 100 tokens and the cache holds at most 64 .*: at most 5 new"),
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


@pytest.mark.parametrize(
    ("chunk", "entered"), [(0, [[0], [1], [2]]), (35, [[0], [], [1], [], [2]]), (80, [[0, 1], [2]])]
)
def test_a_request_enters_only_in_the_pass_that_runs_it(
    chunk: int, entered: list[list[int]]
) -> None:
    scheduler = make(batch=3, chunk=chunk, capacity=200, context=400)
    for identity in range(3):
        scheduler.add(request(identity, 70))
    seen = []
    while scheduler.waiting:
        plan = scheduler.schedule()
        seen.append([one.sequence.id for one in plan.admitted])
        assert set(seen[-1]) <= {identity for identity, _ in run(plan)}
    assert seen == entered


def test_rows_that_the_cache_holds_already_are_neither_run_nor_counted() -> None:
    book = slots(3, capacity=200)
    scheduler = Scheduler(ScheduleConfig(3), book, 400)
    requests = [request(identity, 100) for identity in range(3)]
    for one in requests:
        one.prompt_ids = (*range(99), one.id)
        scheduler.add(one)
    book.found[requests[1].prompt_ids] = 96
    plan = scheduler.schedule()
    assert run(plan) == [(0, 100), (1, 4)]  # 104 rows: 100 more would pass JOIN_ROWS
    assert [(one.sequence.id, one.cached) for one in plan.admitted] == [(0, 0), (1, 96)]
    assert run(scheduler.schedule()) == [(2, 100)]


def test_what_finds_less_than_was_promised_goes_first_in_the_next_pass() -> None:
    book = slots(2, capacity=200)
    scheduler = Scheduler(ScheduleConfig(2), book, 400)
    for identity in range(2):
        scheduler.add(request(identity, 100))
    book.matched = lambda prompt: 96 if len(book._held) == 1 else 0  # type: ignore[method-assign]
    book.admit = lambda one, prompt, most, whole=False: (  # type: ignore[method-assign]
        BlockBook.admit(book, one, prompt, most, whole) * 0
    )
    plan = scheduler.schedule()
    assert run(plan) == [(0, 100)]
    assert [one.sequence.id for one in plan.admitted] == [0, 1]
    assert run(scheduler.schedule()) == [(1, 100)]


def test_a_request_without_room_breaks_the_pass_where_it_may_not_wait() -> None:
    book = BlockBook(blocks=2, block_size=16)
    scheduler = Scheduler(ScheduleConfig(4), book, 400, block_size=16, breaks=True)
    for identity in range(3):
        scheduler.add(request(identity, 16, 1))
    assert run(scheduler.schedule()) == [(0, 16), (1, 16)]  # what fits goes first
    before = (book.left, scheduler.ids, scheduler.running)
    for _ in range(2):
        with pytest.raises(NoRoom) as caught:
            scheduler.schedule()
        assert caught.value.tokens == 16
        assert (book.left, scheduler.ids, scheduler.running) == before
    scheduler.remove(0)
    assert run(scheduler.schedule()) == [(2, 16)]


def test_a_request_that_cannot_grow_breaks_the_pass_where_it_may_not_wait() -> None:
    book = BlockBook(blocks=2, block_size=4)
    scheduler = Scheduler(ScheduleConfig(2), book, 400, block_size=4, breaks=True)
    for identity in range(2):
        scheduler.add(request(identity, 4, 4))
    run(scheduler.schedule())
    book.append((0, 1), ([0] * 4, [0] * 4))
    with pytest.raises(NoRoom) as caught:
        scheduler.schedule()
    assert caught.value.tokens == 8  # a block each, and none is left
    assert scheduler.ids == (0, 1)


def test_a_seat_that_is_missing_breaks_nothing() -> None:
    scheduler = Scheduler(ScheduleConfig(1), slots(1), 100, breaks=True)
    for identity in range(2):
        scheduler.add(request(identity, 8))
    assert run(scheduler.schedule()) == [(0, 8)]
    assert scheduler.schedule().phase == "decode"


def test_a_spoiled_sequence_is_freed_as_such() -> None:
    book = slots(1)
    scheduler = Scheduler(ScheduleConfig(1), book, 100)
    scheduler.add(request(3, 8))
    run(scheduler.schedule())
    scheduler.remove(3, spoiled=True)
    assert (book.spoiled, book.left) == ([3], 1)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=9), st.integers(1, 300))
def test_no_pass_of_whole_prompts_is_wider_than_foreseen(remaining: list[int], widest: int) -> None:
    counts = prefill_counts(remaining, 0, widest)
    assert 1 <= sum(counts) <= max(JOIN_ROWS, widest)
    if remaining[0] <= widest:
        assert counts == prefill_counts(remaining, 0)


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
