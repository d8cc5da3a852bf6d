"""What a measured request asks for: how many tokens, drawn as its build says."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from engine.config import SamplingConfig
from engine.schedule.sequence import SamplingParams


def asked_for(
    sampling: SamplingConfig, prompt: Sequence[int], tokens: int, *, to_the_end: bool = False
) -> SamplingParams:
    """`to_the_end`: all `tokens` are wanted, whatever is said."""
    return SamplingParams(
        max_tokens=tokens,
        temperature=sampling.temperature,
        seed=chance_for(prompt),
        ignore_eos=to_the_end,
    )


def chance_for(prompt: Sequence[int]) -> int:
    """A seed that follows from the prompt: fresh prompts bring fresh chance, and an answer can be
    drawn again."""
    digest = hashlib.sha256(",".join(map(str, prompt)).encode()).digest()
    return int.from_bytes(digest[:7], "big")
