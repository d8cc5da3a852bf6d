"""What drafting cost in a trial, and by formula what other lengths would have gained. Pure.

Costs are in decode steps of the same build without a draft, as in `engine.speculate.formula`.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.speculate.formula import best_length, speed_up, tokens_a_step

LONGEST = 16
"""Tokens of a draft, for which the line of `verify_at` may be believed."""
_HALVINGS = 60


@dataclass(frozen=True)
class DraftCosts:
    """Of a trial with drafts of `length`: one drafted token (`token`), and the verifying pass with
    whatever else a step needs (`verify`)."""

    length: int
    token: float
    verify: float

    def verify_at(self, length: int) -> float:
        """The verifying pass over a draft of another length. Two are known: over no draft it is a
        step (1), over `self.length` it was measured; others lie on the line through both, and none
        below the lesser."""
        return max(1 + (self.verify - 1) * length / self.length, min(self.verify, 1.0))

    def speed_up(self, chance: float, length: int) -> float:
        return speed_up(chance, length, self.token, self.verify_at(length))

    def best(self, chance: float, longest: int = LONGEST) -> int:
        """The length, of 1 to `longest`, that gains most; 0 where none gains."""
        verify = {length: self.verify_at(length) for length in range(1, longest + 1)}
        return best_length(chance, self.token, verify)


def costs_of(length: int, even_length: float, draft_share: float) -> DraftCosts | None:
    """From what a trial measured: `even_length` is a mean step over one without a draft
    (`break_even_length`), `draft_share` the part of it that went into drafting. None where the
    figures cannot be."""
    if length < 1 or even_length <= 0 or not 0 <= draft_share < 1:
        return None
    drafting = draft_share * even_length
    return DraftCosts(length, drafting / length, even_length - drafting)


def chance_of(step_tokens: float, length: int) -> float:
    """The chance r of a drafted token, given that all before it stood, at which drafts of `length`
    give `step_tokens` a step.

    It is not the acceptance rate: that is over all drafted tokens, those behind a fallen one too.
    """
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if tokens_a_step(middle, length) < step_tokens:
            low = middle
        else:
            high = middle
    return high
