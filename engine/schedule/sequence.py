"""One request on its way: its prompt, what it has produced, how far its cache reaches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Finish = Literal["stop", "length"]


@dataclass(frozen=True)
class SamplingParams:
    """How a request's tokens are drawn, and when it ends. `temperature` 0 is greedy.

    Raises:
        ValueError: a value outside its range.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; at least 1")
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}; 0 (greedy) or more, and finite")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p is {self.top_p}; above 0, at most 1")


@dataclass(eq=False)
class Sequence:
    """A request in the engine.

    `computed` counts the tokens whose keys and values are in the cache. A sequence is in prefill
    while computed < `prefill`, and in decode after that, when exactly one token (the last one
    sampled) waits to be run. `prefill` is the prompt's length; after a preemption it is that of all
    tokens so far, to be computed again. `reached` is the most `computed` has ever been: rows below
    it are recomputed.
    """

    id: int
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    computed: int = 0
    output_ids: list[int] = field(default_factory=list)
    finish: Finish | None = None
    prefill: int = field(init=False)
    reached: int = 0
    preemptions: int = 0

    def __post_init__(self) -> None:
        self.prefill = len(self.prompt_ids)

    @property
    def in_prefill(self) -> bool:
        return self.computed < self.prefill

    @property
    def most_cached(self) -> int:
        """Tokens its cache can come to hold: the last token sampled is never run."""
        return len(self.prompt_ids) + self.params.max_tokens - 1

    @property
    def left(self) -> int:
        """Tokens it may still say."""
        return self.params.max_tokens - len(self.output_ids)

    @property
    def to_prefill(self) -> tuple[int, ...]:
        """The tokens that prefill puts into the cache: the prompt, or all so far."""
        if self.prefill == len(self.prompt_ids):
            return self.prompt_ids
        return (*self.prompt_ids, *self.output_ids)[: self.prefill]

    def pending(self, count: int) -> tuple[int, ...]:
        """The next `count` tokens to run."""
        if self.in_prefill:
            return self.to_prefill[self.computed : self.computed + count]
        assert count == 1 and self.computed == len(self.prompt_ids) + len(self.output_ids) - 1
        return (self.output_ids[-1],)

    def advance(self, count: int) -> int:
        """`count` more tokens are in the cache; gives how many of them had been there before."""
        again = min(max(self.reached - self.computed, 0), count)
        self.computed += count
        self.reached = max(self.reached, self.computed)
        return again

    def preempt(self) -> None:
        """Its cache is gone; what it said stays said, and all of it is to be computed again."""
        self.computed = 0
        self.prefill = len(self.prompt_ids) + len(self.output_ids)
        self.preemptions += 1
