"""What the judge says of a trial. Values only; the judging is in `judge`."""

from __future__ import annotations

from typing import Literal

import msgspec

Word = Literal["pass", "fail", "inconclusive", "invalid"]
BoundBy = Literal["bandwidth", "compute", "launch overhead", "capacity", "quality", "none"]
FLOODED = "flooded"
"""The reason of a trial that broke its memory budget."""
FALLEN = "over_the_cliff"
"""The reason of a trial whose quantised model lost its meaning."""
EXIT_CODE: dict[Word, int] = {"pass": 0, "fail": 1, "inconclusive": 3, "invalid": 4}


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class GoalOutcome(_Value, frozen=True):
    """`interval` is (low, high) at the look's confidence; `holds` is None while it straddles."""

    metric: str
    op: Literal[">=", "<="]
    bound: float
    measured: float
    interval: tuple[float, float]
    holds: bool | None


class Remark(_Value, frozen=True):
    """A reason or an advice: `code` names interface text `remark.<code>`, `details` fill it."""

    code: str
    details: dict[str, str] = {}


class Verdict(_Value, frozen=True):
    """`metrics` are point estimates by name (engine.metrics.METRICS); `words` those metrics that
    are words and not derived from the rest, by name."""

    word: Word
    goals: tuple[GoalOutcome, ...]
    metrics: dict[str, float]
    bound_by: BoundBy
    bound_share: float
    phase_bounds: dict[str, BoundBy]
    reasons: tuple[Remark, ...]
    advice: tuple[Remark, ...]
    crowns: tuple[str, ...]
    pairs_used: int
    noise_cv: float
    words: dict[str, str] = {}

    @property
    def flooded(self) -> bool:
        """True where the memory budget broke."""
        return self.failed_as(FLOODED)

    @property
    def fallen(self) -> bool:
        """True where the quantised model lost its meaning."""
        return self.failed_as(FALLEN)

    def failed_as(self, code: str) -> bool:
        """Whether this reason is among those of a failure."""
        return any(reason.code == code for reason in self.reasons)
