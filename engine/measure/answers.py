"""What a build says, word for word: prompts answered greedily on its own kernels and cache width.

Two texts of the same prompt are laid side by side: the full model's and the build's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from engine.cache_plan import token_bytes
from engine.clean import clean
from engine.config import CacheConfig, EngineConfig, ScheduleConfig, WorkloadConfig
from engine.measure.shelf import ShelfTokenizer
from engine.model.llama import Llama
from engine.quality_report import Answer
from engine.run.engine import Engine, SamplingParams

PROMPTS = (
    "What is the capital of France?",
    "Why is the sky blue?",
    "Tell me a short story about a fox.",
)
"""A fact, a reason and a tale: what bits cost shows in this order, the tale parting first."""

TOKENS = 24
SHOWN = 400
"""Characters kept of an answer."""

PASS_ROWS = 1024
"""Rows of prompts in one pass: weights are made dense again for every pass."""
CACHE_BYTES = 320 << 20
"""What the cache of the questions may take: it says how many are asked at once."""

OnSaid = Callable[[int], None]
"""Called after every pass with the requests that have finished; raises to stop."""

Enough = Callable[[int, Sequence[int]], bool]
"""(index of a prompt, its answer so far in tokens) -> whether the rest need not be said."""


def greedy(
    model: Llama,
    config: EngineConfig,
    prompts: Sequence[Sequence[int]],
    tokens: int,
    eos_ids: frozenset[int],
    on_said: OnSaid = lambda _: None,
    enough: Enough = lambda *_: False,
) -> list[tuple[int, ...]]:
    """The build's most likely answers to `prompts`, each of at most `tokens`, the end token left
    out; one is broken off where it is `enough`. As many run at once as fit CACHE_BYTES; what all
    begin with is computed once.

    Of `config` its weights, precision, threads and the width of its cache count. What it says of
    load and memory is of its trial: the questions have their own.

    Raises:
        ValueError: `model` was not made as `config` says, or a prompt is too long for it.
        NonFiniteLogits: a score is no number.
    """
    if not prompts:
        return []
    torch.set_num_threads(config.run.threads)
    engine = Engine(model, _questioning(model, config, prompts, tokens), eos_ids=eos_ids)
    params = SamplingParams(max_tokens=tokens)
    said: dict[int, list[int]] = {}
    index: dict[int, int] = {}
    finished = 0
    for stretch in (prompts[:1], prompts[1:]):  # the first leaves its beginning to the others
        for prompt in stretch:
            request = engine.add_request(prompt, params)
            said[request], index[request] = [], len(index)
        while engine.has_work:
            step = engine.step()
            for request, given in step.tokens.items():
                said[request].extend(token for token in given if token not in eos_ids)
                if request not in step.finished and enough(index[request], said[request]):
                    engine.abort(request)
                    finished += 1
            finished += len(step.finished)
            on_said(finished)
    return [tuple(answer) for answer in said.values()]


def framed_prompts(tokenizer: ShelfTokenizer) -> list[list[int]]:
    """PROMPTS as the chat template frames them. Raises ValueError where the model has no use for
    one."""
    return [tokenizer.chat([("user", prompt)]) for prompt in PROMPTS]


def side_by_side(
    tokenizer: ShelfTokenizer, full: Sequence[Sequence[int]], build: Sequence[Sequence[int]]
) -> tuple[Answer, ...]:
    """The answers to PROMPTS as text, made safe to show; tokens in, one list a prompt."""
    return tuple(
        Answer(
            prompt=prompt,
            full=clean(tokenizer.decode(list(theirs)), SHOWN),
            build=clean(tokenizer.decode(list(ours)), SHOWN),
            differs=parting(theirs, ours),
        )
        for prompt, theirs, ours in zip(PROMPTS, full, build, strict=True)
    )


def parting(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The index of the first token that is not the same; an answer that ends has none there."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return None if len(one) == len(other) else min(len(one), len(other))


def _questioning(
    model: Llama, config: EngineConfig, prompts: Sequence[Sequence[int]], tokens: int
) -> EngineConfig:
    longest = max(map(len, prompts))
    one = (longest + tokens) * token_bytes(config, model.config, model.dtype.itemsize)
    batch = min(max(CACHE_BYTES // one, 1), len(prompts))
    return EngineConfig(
        workload=WorkloadConfig(prompt=longest, output=tokens),
        schedule=ScheduleConfig(batch=batch, prefill_chunk=PASS_ROWS),
        run=config.run,
        cache=CacheConfig("paged", bits=config.cache.bits, prefix_sharing="on"),
        weights=config.weights,
    )
