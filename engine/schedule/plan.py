"""One pass through the model, as the scheduler plans it, and how many rows a prefill pass takes."""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import Literal

from engine.schedule.sequence import Sequence

Phase = Literal["prefill", "decode"]

JOIN_ROWS = 128
"""Whole prompts share a prefill pass while their tokens stay within this many rows. A matmul gains
little past it (float32 203 GFLOP/s at 128 rows, 220 at 512; bfloat16 378 and 419) and a longer pass
would only make the first prompt wait for the others' first tokens."""


@dataclass(frozen=True)
class Piece:
    """The next `count` tokens of `sequence`; in decode its last one, and those that a draft puts
    after it."""

    sequence: Sequence
    count: int
    drafted: tuple[int, ...] = ()

    @property
    def tokens(self) -> tuple[int, ...]:
        """Their ids."""
        pending = self.sequence.pending(self.count - len(self.drafted))
        return (*pending, *self.drafted)

    @property
    def speaks(self) -> bool:
        """Whether the scores of its last row are those of a new token."""
        return self.sequence.computed + self.count >= self.sequence.prefill

    def with_draft(self, drafted: tuple[int, ...]) -> Piece:
        """In decode: the last token, and these after it."""
        return Piece(self.sequence, 1 + len(drafted), drafted)


@dataclass(frozen=True)
class Admission:
    """`sequence` entered the cache, for the first time or again, and found `cached` tokens."""

    sequence: Sequence
    cached: int

    @property
    def first(self) -> bool:
        return self.sequence.preemptions == 0


@dataclass(frozen=True)
class Plan:
    """One pass, with who entered the cache for it and who was put back to make room.

    A decode plan takes one token of every running sequence, and a draft's.
    """

    phase: Phase
    pieces: tuple[Piece, ...]
    admitted: tuple[Admission, ...] = ()
    preempted: tuple[int, ...] = ()


@dataclass(frozen=True)
class PassRule:
    """How a prefill pass is filled.

    A `chunk` of c tokens fills a pass with up to c rows, splitting a prompt where it must. Without
    one (0) prompts stay whole: the first always goes, others join while all fit in JOIN_ROWS. Only
    what is longer than `widest`, the longest prompt foreseen (0: no bound), and than JOIN_ROWS is
    split even so: working memory was set aside for that many rows, and a prompt that is recomputed
    after a preemption, answer and all, can have more.
    """

    chunk: int = 0
    widest: int = 0

    def room(self, rows: int) -> int:
        """Rows that may still join a pass of `rows`; whole prompts must fit in it."""
        return max((self.chunk or JOIN_ROWS) - rows, 0)

    def take(self, tokens: int, rows: int) -> int:
        """How many of the next prompt's `tokens` a pass takes that has `rows` so far; 0 is none."""
        room = self.room(rows)
        if self.chunk:
            return min(tokens, room)
        if rows == 0:
            return min(tokens, max(JOIN_ROWS, self.widest)) if self.widest else tokens
        return tokens if tokens <= room else 0


def prefill_counts(remaining: Ordered[int], chunk: int, widest: int = 0) -> tuple[int, ...]:
    """How many tokens of each prompt, in order, one prefill pass takes.

    `remaining` holds the tokens each prompt still has to run, oldest first.
    """
    rule = PassRule(chunk, widest)
    counts: list[int] = []
    for tokens in remaining:
        count = rule.take(tokens, sum(counts))
        if count == 0:
            break
        counts.append(count)
    return tuple(counts)
