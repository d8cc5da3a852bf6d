"""What a run's decode steps tell of drafts, beside their times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.speculate.speculator import DraftTally, Verified
from engine.trial import DraftCounters, DraftSample


class DraftedStep(Protocol):
    """What a decode step tells: the tokens it gave, and what became of drafts."""

    @property
    def tokens(self) -> Mapping[int, tuple[int, ...]]: ...

    @property
    def drafts(self) -> Mapping[int, Verified]: ...


@dataclass
class DraftWatch:
    """What a run's decode steps tell of drafts, in the clock's nanoseconds."""

    clock: Callable[[], int]
    tally: DraftTally
    given: dict[int, list[int]]
    finished: dict[int, int] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=lambda: {"draft": 0, "verify": 0})
    since: int = 0

    def on_part(self, name: str) -> None:
        now = self.clock()
        self.spent[name] += now - self.since
        self.since = now

    def saw(self, step: DraftedStep) -> None:
        """A decode step: what it gave each request, and what became of the drafts."""
        for request, counts in self.given.items():
            counts.append(len(step.tokens.get(request, ())))
        for request in step.tokens:
            if request in step.drafts:
                self.tally.add(step.drafts[request])
            else:
                self.tally.bare += 1

    def sample(self) -> DraftSample:
        return DraftSample(
            counters=self.tally.counters(),
            draft_seconds=self.spent["draft"] / 1e9,
            verify_seconds=self.spent["verify"] / 1e9,
        )


def merge_drafts(drafts: Sequence[DraftSample]) -> DraftSample | None:
    """Counts added up, seconds as a mean."""
    if not drafts:
        return None
    told = [draft.counters for draft in drafts]
    counters = DraftCounters(
        steps=sum(one.steps for one in told),
        bare=sum(one.bare for one in told),
        offered=tuple(map(sum, zip(*(one.offered for one in told), strict=True))),
        stood=tuple(map(sum, zip(*(one.stood for one in told), strict=True))),
    )
    return DraftSample(
        counters=counters,
        draft_seconds=sum(draft.draft_seconds for draft in drafts) / len(drafts),
        verify_seconds=sum(draft.verify_seconds for draft in drafts) / len(drafts),
    )
