"""Who runs next: first come, first served; prefill before decode; never more than fits.

Requests enter the cache in order of arrival, each in the very pass that runs its first row, so that
it can share what an earlier one computed. Running ones grow, and where the cache is too small for
all, the one that entered last is put back (preempted): its cache is freed, and its tokens so far
are computed again when it returns. The first is never put back, so there is always progress.

Preemption by recomputation is that of vLLM (Kwon et al., 2023).
"""

from __future__ import annotations

from collections import deque

from engine.cache.kv_cache import KVCache
from engine.config import ScheduleConfig
from engine.schedule.limits import check_fits, longest_cached
from engine.schedule.plan import JOIN_ROWS, Admission, PassRule, Phase, Piece, Plan, prefill_counts
from engine.schedule.sequence import Sequence

__all__ = ["JOIN_ROWS", "NoRoom", "Phase", "Piece", "Plan", "Scheduler", "prefill_counts"]

MAX_PREEMPTIONS = 3
"""How often a sequence can be put back. After that it enters with all the room it may come to need,
and stays: what is recomputed has a bound."""


class NoRoom(RuntimeError):
    """A request finds no room and must not wait: it asks for `tokens` more slots than it holds.

    Nothing has changed: the pass that needed them was not planned.
    """

    def __init__(self, tokens: int) -> None:
        super().__init__(f"no room for {tokens} more tokens")
        self.tokens = tokens


class Scheduler:
    """Holds the waiting and the running; admits while a seat, cache, and rows of the pass are free.

    `block_size` is the cache's unit of growth in tokens, 0 where every sequence has all its room
    from the start. `widest` is the longest prompt foreseen (see `PassRule`). With `breaks`, a
    request that has a seat and finds no room raises NoRoom; without, it waits. A decode pass has
    room for `draft` tokens more of each sequence, as far as there is any and it may say as many.
    """

    def __init__(
        self,
        config: ScheduleConfig,
        cache: KVCache,
        context: int,
        *,
        block_size: int = 0,
        widest: int = 0,
        breaks: bool = False,
        draft: int = 0,
    ) -> None:
        self._seats = config.batch
        self._rule = PassRule(config.prefill_chunk, widest)
        self._cache = cache
        self._context = context
        self._longest = longest_cached(cache)
        self._block_size = block_size
        self._breaks = breaks
        self._draft = draft
        self._waiting: deque[Sequence] = deque()
        self._running: dict[int, Sequence] = {}  # in the order they entered the cache

    def add(self, sequence: Sequence) -> None:
        """Queue a request.

        Raises:
            ValueError: it could never run here; names the limits and what would fit.
        """
        prompt, new = len(sequence.prompt_ids), sequence.params.max_tokens
        check_fits(prompt, new, self._context, self._longest)
        self._waiting.append(sequence)

    def schedule(self) -> Plan:
        """Admit what fits and plan the next pass: prefill while any prompt is unfinished.

        Raises:
            ValueError: there is nothing to run.
            NoRoom: with `breaks`, a request finds no room.
        """
        plan = self._prefill()
        if plan is not None:
            return plan
        if not self._running:
            raise ValueError("nothing to schedule: add a request first")
        return self._decode()

    def remove(self, sequence_id: int, spoiled: bool = False) -> None:
        """Take a finished or aborted request out and free its cache.

        `spoiled`: its last pass failed, and what that wrote must serve nobody.

        Raises:
            ValueError: no such request.
        """
        if sequence_id in self._running:
            del self._running[sequence_id]
            self._cache.free(sequence_id, spoiled)
            return
        for sequence in self._waiting:
            if sequence.id == sequence_id:
                self._waiting.remove(sequence)
                return
        raise ValueError(f"no request {sequence_id} is waiting or running")

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """Every request not finished: running ones first, as they entered, then in line."""
        return (*self._running.values(), *self._waiting)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(sequence.id for sequence in self.sequences)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._waiting)

    # Prefill

    def _prefill(self) -> Plan | None:
        """A pass of unfinished prompts, then of those that can enter; None where there are none."""
        pieces: list[Piece] = []
        rows = 0
        for sequence in self._running.values():
            if not sequence.in_prefill:
                continue
            count = self._rule.take(sequence.prefill - sequence.computed, rows)
            if count == 0:
                return Plan("prefill", tuple(pieces))
            pieces.append(Piece(sequence, count))
            rows += count
        admitted: list[Admission] = []
        while self._next_can_enter(rows, changed=bool(admitted)):
            sequence = self._waiting.popleft()
            admitted.append(self._enter(sequence))
            count = self._rule.take(sequence.prefill - sequence.computed, rows)
            if count == 0:
                break  # the cache found less than it had promised: it goes first in the next pass
            pieces.append(Piece(sequence, count))
            rows += count
        if not pieces:
            return None
        return Plan("prefill", tuple(pieces), tuple(admitted))

    def _next_can_enter(self, rows: int, changed: bool) -> bool:
        """Whether the first in line can run in this pass of `rows` so far.

        Strictly in order: a long request at the head is not overtaken by a short one.

        Raises:
            NoRoom: with `breaks`, only room is missing, and this pass has `changed` nothing yet.
        """
        if not self._waiting or len(self._running) >= self._seats:
            return False
        head = self._waiting[0]
        if rows:
            room = self._rule.room(rows)
            if room == 0:
                return False
            if not self._rule.chunk and head.prefill > room:  # whole: only what is left of it runs
                left = head.prefill - self._cache.matched(head.to_prefill)
                if left > room:
                    return False
        if self._has_room(head):
            return True
        if self._breaks and not changed:
            raise NoRoom(self._cache.needed_tokens(head.to_prefill, head.most_cached))
        return False

    def _has_room(self, head: Sequence) -> bool:
        fits = self._cache.can_admit(
            head.to_prefill, head.most_cached, _stays(head), self._spare(head)
        )
        assert fits or self._running, "what can ever fit, fits an empty cache"
        return fits

    def _enter(self, sequence: Sequence) -> Admission:
        """Into the cache: what it finds there need not run."""
        found = self._cache.admit(
            sequence.id, sequence.to_prefill, sequence.most_cached, _stays(sequence)
        )
        sequence.advance(found)
        self._running[sequence.id] = sequence
        return Admission(sequence, found)

    def _spare(self, head: Sequence) -> int:
        """Blocks to leave free when `head` enters: else it would be put back at once.

        One for each sequence that has yet to grow. A sequence that is going to stay takes its room
        for good, so it must leave what all the others can come to need: whoever is first then
        always finds it, whatever came in between and can be put back.
        """
        if self._breaks or not self._block_size:
            return 0
        if _stays(head):
            return sum(self._growth(sequence) for sequence in self._running.values())
        growing = (*self._running.values(), head)
        return sum(min(self._growth(sequence), 1) for sequence in growing)

    def _growth(self, sequence: Sequence) -> int:
        """Blocks it can come to need beyond those it has, or enters with."""
        if _stays(sequence):
            return 0
        has = max(sequence.computed, sequence.prefill)
        return -(-sequence.most_cached // self._block_size) + (-has // self._block_size)

    # Decode

    def _decode(self) -> Plan:
        """One token of every running sequence, less those put back to make room for the others;
        and room for drafts, for which nobody is put back.

        Raises:
            NoRoom: with `breaks`, they cannot all grow.
        """
        preempted: list[int] = []
        while missing := self._cache.shortage(tuple(self._running), (1,) * len(self._running)):
            if self._breaks:
                raise NoRoom(self._cache.vacant_tokens + missing * self._block_size)
            preempted.append(self._put_back())
        running = tuple(self._running.values())
        counts = [1 + min(self._draft, sequence.left - 1) for sequence in running]
        if self._draft and self._cache.shortage(tuple(self._running), counts):
            counts = [1] * len(running)
        pieces = tuple(map(Piece, running, counts))
        return Plan("decode", pieces, preempted=tuple(preempted))

    def _put_back(self) -> int:
        """Preempt the last that entered and may be put back; it is first in line from now on."""
        _, *others = self._running.values()
        victims = [sequence for sequence in others if not _stays(sequence)]
        assert victims, "those that stay left room for the first"
        victim = victims[-1]
        del self._running[victim.id]
        self._cache.free(victim.id)
        victim.preempt()
        self._waiting.appendleft(victim)
        return victim.id


def _stays(sequence: Sequence) -> bool:
    """Whether it has been put back as often as a sequence can be."""
    return sequence.preemptions >= MAX_PREEMPTIONS
