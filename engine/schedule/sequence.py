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
    while computed < len(prompt_ids), and in decode after that, when exactly one token (the last
    one sampled) waits to be run.
    """

    id: int
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    computed: int = 0
    output_ids: list[int] = field(default_factory=list)
    finish: Finish | None = None

    @property
    def in_prefill(self) -> bool:
        return self.computed < len(self.prompt_ids)

    @property
    def most_cached(self) -> int:
        """Tokens its cache can come to hold: the last token sampled is never run."""
        return len(self.prompt_ids) + self.params.max_tokens - 1

    def pending(self, count: int) -> tuple[int, ...]:
        """The next `count` tokens to run."""
        if self.in_prefill:
            return self.prompt_ids[self.computed : self.computed + count]
        assert count == 1 and self.computed == len(self.prompt_ids) + len(self.output_ids) - 1
        return (self.output_ids[-1],)
