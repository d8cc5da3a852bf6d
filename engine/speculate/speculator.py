"""Speculation as the engine's step sees it: drafts go into a plan, outcomes come out of its scores.

What is proposed is the proposer's affair, what stands the sampler's; here is how much is asked for,
and what became of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.run.sampler import Sampler
from engine.schedule.plan import Piece, Plan
from engine.speculate.draft import Asked, Draft, Proposer
from engine.trial import DraftCounters

MORE, LESS = 2, 1
"""An adaptive draft grows by so much where all of it stood, and shrinks where some fell: the rule
of transformers' assisted generation (Gante, 2023)."""


@dataclass(frozen=True)
class Verified:
    """A draft of one request in one step: of its `tokens` the first `accepted` stood."""

    tokens: tuple[int, ...]
    accepted: int


class DraftTally:
    """Adds up what became of drafts of at most `length` tokens; see `DraftCounters`."""

    def __init__(self, length: int) -> None:
        self.steps = self.bare = 0
        self.offered, self.stood = [0] * length, [0] * length

    def add(self, verified: Verified) -> None:
        self.steps += 1
        for place in range(len(verified.tokens)):
            self.offered[place] += 1
            self.stood[place] += place < verified.accepted

    def counters(self) -> DraftCounters:
        return DraftCounters(self.steps, self.bare, tuple(self.offered), tuple(self.stood))


class Speculator:
    """Asks `proposer` for up to `length` tokens a request and step; with `adaptive`, for as many as
    the request's last drafts were worth."""

    def __init__(
        self, proposer: Proposer, sampler: Sampler, length: int, adaptive: bool = False
    ) -> None:
        self.proposer = proposer
        self.length = length
        self._sampler = sampler
        self._adaptive = adaptive
        self._lengths: dict[int, int] = {}
        self._tally = DraftTally(length)

    def draft(self, plan: Plan) -> tuple[Plan, Mapping[int, Draft]]:
        """A decode plan with drafts in its pieces, no longer than it has room for."""
        asked = [
            Asked(piece.sequence, most) for piece in plan.pieces if (most := self._most(piece)) > 0
        ]
        drafts = self.proposer.propose(asked) if asked else {}
        pieces = tuple(
            piece.with_draft(draft.tokens if (draft := drafts.get(piece.sequence.id)) else ())
            for piece in plan.pieces
        )
        return replace(plan, pieces=pieces), drafts

    def settled(self, request: int, verified: Verified | None) -> None:
        """What became of a request in this step; None where it had no draft."""
        if verified is None:
            self._tally.bare += 1
            return
        self._tally.add(verified)
        if self._adaptive:
            all_stood = verified.accepted == len(verified.tokens)
            length = self._lengths.get(request, self.length)
            length += MORE if all_stood else -LESS
            self._lengths[request] = min(max(length, 1), self.length)

    def close(self, request: int) -> None:
        """The request has ended, or was put back."""
        self._lengths.pop(request, None)
        self.proposer.close(request)

    def reset(self) -> None:
        """Count from zero again."""
        self._tally = DraftTally(self.length)

    @property
    def counters(self) -> DraftCounters:
        return self._tally.counters()

    def _most(self, piece: Piece) -> int:
        return min(piece.count - 1, self._lengths.get(piece.sequence.id, self.length))
