"""What the engine tells of its work: one step, and the sums since it was last reset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from engine.schedule.plan import Phase, Plan
from engine.schedule.sequence import Finish
from engine.speculate.speculator import Verified

OnPart = Callable[[str], None]
"""Called within a step with the part that has just ended: "draft", "verify"."""

_NONE: Mapping[int, int] = MappingProxyType({})
_NO_DRAFTS: Mapping[int, Verified] = MappingProxyType({})


@dataclass(frozen=True)
class StepOutput:
    """What one pass did.

    `sequence_ids` ran, with `rows` tokens in all. `tokens` holds what each emitted: one token in
    decode, or as many as a draft was right about and one; in prefill only those whose prompt is now
    complete. Of these, `first_tokens` are the requests that had said nothing before (one that
    returns after a preemption goes on where it was interrupted). `finished` maps the requests that
    ended in this step to why. `admitted` maps those that entered the cache for it, for the first
    time or again, to the tokens they found there; `preempted` were put back to make room. `drafts`
    are those of the requests that had one, and what became of them.
    """

    phase: Phase
    sequence_ids: tuple[int, ...]
    rows: int
    tokens: Mapping[int, tuple[int, ...]]
    first_tokens: tuple[int, ...]
    finished: Mapping[int, Finish]
    admitted: Mapping[int, int] = field(default_factory=lambda: _NONE)
    preempted: tuple[int, ...] = ()
    drafts: Mapping[int, Verified] = field(default_factory=lambda: _NO_DRAFTS)

    @property
    def finished_ids(self) -> tuple[int, ...]:
        return tuple(self.finished)


@dataclass(frozen=True)
class EngineCounters:
    """Sums since `Engine.reset()`.

    `prompt_tokens` are those of the requests that have entered the cache, of which `cached_tokens`
    were found there when they first did. `prefilled_tokens` are the rows of prefill passes,
    `recomputed_tokens` of which had been in the cache before a preemption. `copies` counts blocks
    copied on write. When all work is done,

        prefilled = prompt - cached + recomputed + preemptions

    since one that returns also runs, in that prefill, the last token it had sampled.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefilled_tokens: int = 0
    recomputed_tokens: int = 0
    preemptions: int = 0
    copies: int = 0


class Tally:
    """Adds up what plans did."""

    def __init__(self) -> None:
        self._prompt = 0
        self._cached = 0
        self._prefilled = 0
        self._recomputed = 0
        self._preemptions = 0

    def planned(self, plan: Plan) -> None:
        self._preemptions += len(plan.preempted)
        for admission in plan.admitted:
            if admission.first:
                self._prompt += len(admission.sequence.prompt_ids)
                self._cached += admission.cached

    def prefilled(self, rows: int, again: int) -> None:
        """A prefill pass ran `rows` tokens, `again` of which had been in the cache before."""
        self._prefilled += rows
        self._recomputed += again

    def counters(self, copies: int) -> EngineCounters:
        """The sums so far; `copies` is the cache's own count."""
        return EngineCounters(
            prompt_tokens=self._prompt,
            cached_tokens=self._cached,
            prefilled_tokens=self._prefilled,
            recomputed_tokens=self._recomputed,
            preemptions=self._preemptions,
            copies=copies,
        )
