"""Who runs next: first come, first served; prefill before decode; never more than fits."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import Literal

from engine.cache.kv_cache import KVCache
from engine.config import ScheduleConfig
from engine.schedule.sequence import Sequence

Phase = Literal["prefill", "decode"]

JOIN_ROWS = 128
"""Whole prompts share a prefill pass while their tokens stay within this many rows. A matmul gains
little past it (float32 203 GFLOP/s at 128 rows, 220 at 512; bfloat16 378 and 419) and a longer pass
would only make the first prompt wait for the others' first tokens."""


@dataclass(frozen=True)
class Piece:
    """The next `count` tokens of `sequence`."""

    sequence: Sequence
    count: int


@dataclass(frozen=True)
class Plan:
    """One pass through the model. A decode plan takes one token of every running sequence."""

    phase: Phase
    pieces: tuple[Piece, ...]


def prefill_counts(remaining: Ordered[int], chunk: int) -> tuple[int, ...]:
    """How many tokens of each prompt, in order, one prefill pass takes.

    `remaining` holds the tokens each prompt still has to run, oldest first. A chunk of c tokens
    fills a pass with up to c rows, splitting a prompt where it must. Without a chunk (0) prompts
    stay whole: the first always goes, others join while all fit in JOIN_ROWS.
    """
    counts: list[int] = []
    room = chunk or max(JOIN_ROWS, remaining[0])
    for tokens in remaining:
        if room == 0 or (not chunk and tokens > room):
            break
        counts.append(min(tokens, room))
        room -= counts[-1]
    return tuple(counts)


class Scheduler:
    """Holds the waiting and the running, and admits while both a seat and cache are free."""

    def __init__(self, config: ScheduleConfig, cache: KVCache, context: int) -> None:
        self._config = config
        self._cache = cache
        self._context = context
        self._waiting: deque[Sequence] = deque()
        self._running: dict[int, Sequence] = {}

    def add(self, sequence: Sequence) -> None:
        """Queue a request.

        Raises:
            ValueError: it could never run here; names the limits and what would fit.
        """
        prompt, new = len(sequence.prompt_ids), sequence.params.max_tokens
        if prompt == 0:
            raise ValueError("the prompt is empty; at least one token is needed")
        limit = min(self._context, self._cache.capacity + 1)
        if prompt + new > limit:
            raise ValueError(
                f"a prompt of {prompt} tokens and {new} new ones make {prompt + new}; the model's "
                f"context is {self._context} tokens and a cache slot holds "
                f"{self._cache.capacity}: {_what_fits(prompt, new, limit)}"
            )
        self._waiting.append(sequence)

    def schedule(self) -> Plan:
        """Admit what fits, then plan the next pass: prefill while any prompt is unfinished.

        Raises:
            ValueError: there is nothing to run.
        """
        self._admit()
        prefilling = [s for s in self._running.values() if s.in_prefill]
        if prefilling:
            remaining = [len(s.prompt_ids) - s.computed for s in prefilling]
            counts = prefill_counts(remaining, self._config.prefill_chunk)
            pieces = tuple(map(Piece, prefilling, counts))
            return Plan("prefill", pieces)
        if not self._running:
            raise ValueError("nothing to schedule: add a request first")
        return Plan("decode", tuple(Piece(s, 1) for s in self._running.values()))

    def remove(self, sequence_id: int) -> None:
        """Take a finished or aborted request out and free its cache.

        Raises:
            ValueError: no such request.
        """
        if sequence_id in self._running:
            del self._running[sequence_id]
            self._cache.free(sequence_id)
            return
        for sequence in self._waiting:
            if sequence.id == sequence_id:
                self._waiting.remove(sequence)
                return
        raise ValueError(f"no request {sequence_id} is waiting or running")

    @property
    def ids(self) -> tuple[int, ...]:
        """Every request not finished: running ones first, in order of arrival."""
        return (*self._running, *(sequence.id for sequence in self._waiting))

    @property
    def has_work(self) -> bool:
        return bool(self._running or self._waiting)

    def _admit(self) -> None:
        """Strictly in order: a long request at the head is not overtaken by a short one."""
        while self._waiting and len(self._running) < self._config.batch:
            sequence = self._waiting[0]
            if not self._cache.can_admit(sequence.prompt_ids, sequence.most_cached):
                return
            self._cache.admit(sequence.id, sequence.prompt_ids, sequence.most_cached)
            self._running[sequence.id] = self._waiting.popleft()


def _what_fits(prompt: int, new: int, limit: int) -> str:
    shorter_prompt = f"a prompt of at most {limit - new} tokens would fit"
    fewer_new = f"at most {limit - prompt} new tokens would fit"
    if limit - new < 1 and limit - prompt < 1:
        return f"prompt and new tokens together must be at most {limit}"
    if limit - prompt < 1:
        return shorter_prompt
    return fewer_new if limit - new < 1 else f"{fewer_new}, or {shorter_prompt}"
