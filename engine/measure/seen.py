"""What a trial has gathered so far, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from engine.draft_report import DraftReport
from engine.measure.timing import Clock
from engine.metrics import Evidence
from engine.quality_report import Quality, Rung
from engine.quantised import Notice
from engine.trial import Fault, Flood, LoadPair, Pair, RunSample


@dataclass
class Seen:
    """Samples, and what was found out after the clock had stopped."""

    pairs: list[Pair] = field(default_factory=list)
    singles: list[RunSample] = field(default_factory=list)
    load_pairs: list[LoadPair] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    quality: Quality | None = None
    flood: Flood | None = None
    text: str = ""
    ladder: tuple[Rung, ...] = ()
    notices: tuple[Notice, ...] = ()
    draft: DraftReport | None = None

    def added_to(self, evidence: Evidence) -> Evidence:
        return replace(
            evidence,
            pairs=tuple(self.pairs),
            singles=tuple(self.singles),
            load_pairs=tuple(self.load_pairs),
        )

    def broke(self, flood: Flood) -> None:
        """The memory budget broke: nothing that was timed before counts."""
        self.flood = flood
        timed: Sequence[list[Pair] | list[RunSample] | list[LoadPair]] = (
            self.pairs,
            self.singles,
            self.load_pairs,
        )
        for samples in timed:
            samples.clear()


class Pace:
    """Seconds left of a timed part, at the pace so far; `expected` a unit before the first."""

    def __init__(self, clock: Clock, expected: float) -> None:
        self._clock = clock
        self._expected = expected
        self._start = clock()

    def left(self, done: int, total: int) -> float:
        if done == 0:
            return self._expected * total
        return (self._clock() - self._start) / 1e9 / done * (total - done)
