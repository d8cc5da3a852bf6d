"""Too little cache for all: who is put back, what it costs, and that every load ends."""

from __future__ import annotations

from dataclasses import dataclass, field

from block_book import BlockBook
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import ScheduleConfig
from engine.schedule.plan import Plan
from engine.schedule.scheduler import MAX_PREEMPTIONS, Scheduler
from engine.schedule.sequence import SamplingParams, Sequence


def request(identity: int, prompt: int, new: int) -> Sequence:
    """Tokens tell whose they are and where they stand, so that a wrong one is seen."""
    ids = tuple(1000 * identity + place for place in range(prompt))
    return Sequence(identity, ids, SamplingParams(max_tokens=new))


@dataclass
class Play:
    """Runs plans on a counting cache; a token said is its place in the answer."""

    scheduler: Scheduler
    book: BlockBook
    plans: list[Plan] = field(default_factory=list)
    recomputed: int = 0

    def step(self) -> Plan:
        plan = self.scheduler.schedule()
        ids = [piece.sequence.id for piece in plan.pieces]
        runs = [piece.sequence.pending(piece.count) for piece in plan.pieces]
        for piece, tokens in zip(plan.pieces, runs, strict=True):
            one = piece.sequence
            text = (*one.prompt_ids, *one.output_ids)
            assert tokens == text[one.computed : one.computed + piece.count] and tokens
            assert self.book.length(one.id) == one.computed
        self.book.append(ids, runs)
        for piece in plan.pieces:
            one, speaks = piece.sequence, piece.speaks
            self.recomputed += one.advance(piece.count)
            if speaks:
                one.output_ids.append(len(one.output_ids))
                if len(one.output_ids) == one.params.max_tokens:
                    self.scheduler.remove(one.id)
        entered = [one.sequence.id for one in plan.admitted]
        line = [one.id for one in self.scheduler.sequences[self.scheduler.running :]]
        assert line == sorted(line), "whoever was put back stands where it came"
        assert not entered or not line or max(entered) < min(line), "nobody is overtaken"
        self.plans.append(plan)
        return plan

    def drain(self, most_steps: int) -> None:
        while self.scheduler.has_work:
            self.step()
            assert len(self.plans) <= most_steps, "the load does not come to its end"


def play(
    blocks: int, size: int, batch: int, requests: list[tuple[int, int]], chunk: int = 0
) -> tuple[Play, list[Sequence]]:
    book = BlockBook(blocks, size)
    scheduler = Scheduler(ScheduleConfig(batch, chunk), book, 10_000, block_size=size)
    sequences = [request(identity, *one) for identity, one in enumerate(requests)]
    for sequence in sequences:
        scheduler.add(sequence)
    return Play(scheduler, book), sequences


def test_the_last_that_entered_is_put_back_first_in_line_and_says_no_token_twice() -> None:
    # 12 blocks of 2: room for two to the end, or for three of 8 tokens.
    game, (first, second, third) = play(12, 2, batch=3, requests=[(4, 9), (4, 9), (4, 9)])
    while not third.preemptions:
        plan = game.step()
    assert plan.preempted == (2,) and game.scheduler.ids == (0, 1, 2)
    said = list(third.output_ids)
    assert said and third.to_prefill == (*third.prompt_ids, *said) and third.computed == 0
    game.drain(200)
    assert third.output_ids == list(range(9))
    assert (first.preemptions, second.preemptions, third.preemptions) == (0, 0, 1)
    assert game.recomputed == len(third.prompt_ids) + len(said) - 1  # the last was never run


def test_one_that_returns_needs_a_block_left_for_each_that_grows() -> None:
    book = BlockBook(blocks=8, block_size=4)
    scheduler = Scheduler(ScheduleConfig(3), book, 1000, block_size=4)
    for identity in range(3):
        scheduler.add(request(identity, 8, 8))
    game = Play(scheduler, book)
    plan = game.step()
    # Two prompts take 4 of 8 blocks; a third would take 2 more, and all three have yet to grow.
    assert [one.sequence.id for one in plan.admitted] == [0, 1]
    assert not scheduler.schedule().admitted


def test_one_that_cannot_grow_asks_for_no_spare_block() -> None:
    # A prompt of 4 and one new token: the last token is never cached, so 4 is all it holds.
    game, sequences = play(3, 4, batch=3, requests=[(4, 1), (4, 1), (4, 1)])
    game.step()
    assert [len(one.output_ids) for one in sequences] == [1, 1, 1]


def test_one_put_back_too_often_waits_for_all_its_room_and_then_stays() -> None:
    game, sequences = play(6, 2, batch=4, requests=[(2, 10), (2, 8), (2, 8), (2, 8)])
    weary = sequences[-1]
    weary.preemptions = MAX_PREEMPTIONS
    entered = None
    while game.scheduler.has_work:
        plan = game.step()
        assert weary.id not in plan.preempted
        if any(one.sequence is weary for one in plan.admitted):
            entered = game.book.left
    assert entered is not None and weary.output_ids == list(range(8))


def test_one_that_stays_leaves_what_those_before_it_can_come_to_need() -> None:
    # Of 10 blocks the first has 2 and grows to 6; the second takes 5 for good.
    game, (first, weary) = play(10, 2, batch=2, requests=[(4, 9), (2, 9)])
    weary.preemptions = MAX_PREEMPTIONS
    game.step()
    assert game.scheduler.ids == (0, 1) and game.scheduler.running == 1
    game.drain(100)
    assert first.preemptions == 0 and game.recomputed == 0


def test_one_that_stays_has_no_need_of_a_spare_block() -> None:
    # It takes its 5 blocks at once; the next needs 2 and one to grow into, of 8.
    game, (weary, second) = play(8, 2, batch=2, requests=[(2, 9), (4, 3)])
    weary.preemptions = MAX_PREEMPTIONS
    plan = game.step()
    assert [one.sequence for one in plan.admitted] == [weary, second]


def test_a_prompt_that_returns_is_split_where_its_pass_would_be_wider_than_foreseen() -> None:
    book = BlockBook(blocks=22, block_size=16)
    scheduler = Scheduler(ScheduleConfig(2), book, 1000, block_size=16, widest=130)
    for identity in range(2):
        scheduler.add(request(identity, 130, 60))
    game = Play(scheduler, book)
    game.drain(500)
    passes = [plan for plan in game.plans if plan.phase == "prefill"]
    assert sum(len(plan.preempted) for plan in game.plans) > 0
    assert max(sum(piece.count for piece in plan.pieces) for plan in passes) == 130
    assert len(passes) > 3  # the second came back in two


@st.composite
def loads(draw: st.DrawFn) -> tuple[int, int, list[tuple[int, int]], int, int]:
    """A block size, the longest request's blocks and some more, requests, batch, chunk."""
    size = draw(st.sampled_from([1, 2, 3, 8]))
    requests = draw(
        st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=8)
    )
    need = max(-(-(prompt + new - 1) // size) for prompt, new in requests)
    more = draw(st.integers(0, 2 * need))
    batch = draw(st.integers(1, 8))
    chunk = draw(st.sampled_from([0, 4, 16]))
    return size, need + more, requests, batch, chunk


@settings(max_examples=300, deadline=None)
@given(loads())
def test_every_load_ends_in_a_bounded_number_of_steps(
    load: tuple[int, int, list[tuple[int, int]], int, int],
) -> None:
    size, blocks, requests, batch, chunk = load
    game, sequences = play(blocks, size, batch, requests, chunk)
    # Each step runs at least one row; rows are bounded by what each runs a bounded number of times.
    game.drain(sum((MAX_PREEMPTIONS + 1) * (prompt + new) for prompt, new in requests))
    for sequence, (_, new) in zip(sequences, requests, strict=True):
        assert sequence.output_ids == list(range(new))
        assert sequence.preemptions <= MAX_PREEMPTIONS
    assert game.book.left == blocks
    entered = [one.sequence.id for plan in game.plans for one in plan.admitted if one.first]
    assert entered == sorted(entered)  # no request overtakes another on its way in
    oldest = [plan for plan in game.plans if plan.preempted]
    assert all(plan.phase == "decode" and plan.pieces for plan in oldest)
    rows = sum(piece.count for plan in game.plans for piece in plan.pieces)
    held = sum(prompt + new - 1 for prompt, new in requests)
    assert rows == held + game.recomputed


@given(loads())
@settings(max_examples=60, deadline=None)
def test_with_room_for_all_nobody_is_put_back(
    load: tuple[int, int, list[tuple[int, int]], int, int],
) -> None:
    size, blocks, requests, batch, chunk = load
    game, _ = play(blocks * batch, size, batch, requests, chunk)
    game.drain(10_000)
    assert not any(plan.preempted for plan in game.plans) and game.recomputed == 0
    seats = [len({p.sequence.id for p in plan.pieces}) for plan in game.plans]
    assert max(seats) <= batch
