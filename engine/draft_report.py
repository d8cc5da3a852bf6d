"""What is found out of a build that drafts, once the clock has stopped: is it the same text, and
what became of each word. Torch-free."""

from __future__ import annotations

from typing import Literal

import msgspec

Fate = Literal["accepted", "rejected", "corrected", "added", "plain"]
"""Of a token: drafted and stood; drafted and fell; the target's own in its place; the target's own
after a draft that stood whole; the target's own where nothing was drafted."""


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Lossless(_Value, frozen=True):
    """Greedy answers of the timed runs beside those of the same build without a draft.

    Of `requests` answers `identical` are the same token by token. `near_ties` part where both words
    lay within `allowed` of each other in the float32 model's scores, in their standard deviations;
    `widest` is the largest such margin. The rest are faults.
    """

    requests: int
    identical: int
    near_ties: int
    widest: float
    allowed: float

    @property
    def same(self) -> int:
        return self.identical + self.near_ties


class Drawn(_Value, frozen=True):
    """Sampled answers of the timed runs, held to the model's own distribution.

    Each of `tokens` is a point between 0 and 1 that is evenly spread if the token was drawn as the
    model alone would have drawn it. `distance` is the farthest that the points' shares lie from
    evenness (Kolmogorov and Smirnov), `chance` how often fair draws lie as far; below `least` they
    are not taken for fair.
    """

    tokens: int
    distance: float
    chance: float
    least: float

    @property
    def fair(self) -> bool:
        return self.chance >= self.least


class Piece(_Value, frozen=True):
    """Words side by side that had one fate; those that were rejected are not in the answer."""

    text: str
    fate: Fate


class DraftedText(_Value, frozen=True):
    """An answer to a prompt of one kind, as it was drafted, accepted and corrected. `steps` counts
    the target's passes after the first word."""

    kind: str
    prompt: str
    pieces: tuple[Piece, ...]
    drafted: int
    accepted: int
    steps: int
    tokens: int

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted tokens; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None


class DraftReport(_Value, frozen=True):
    """The proof is there where the reference is the same build without a draft: `lossless` for
    greedy answers, `drawn` for sampled ones."""

    lossless: Lossless | None = None
    texts: tuple[DraftedText, ...] = ()
    drawn: Drawn | None = None
