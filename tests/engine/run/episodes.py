"""Episodes of an engine, and what the model says without one: shared by this folder's tests."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from torch import Tensor

from engine.cache_plan import BudgetError
from engine.config import (
    CacheConfig,
    EngineConfig,
    MemoryConfig,
    RunConfig,
    ScheduleConfig,
    WorkloadConfig,
)
from engine.fit import fit_cache
from engine.model.llama import Llama
from engine.run import scoring
from engine.run.engine import Engine, SamplingParams, StepOutput

NEAR_TIE = 1e-4
"""How much less than the best a float32 score may be where rounding alone decides."""


def configure(
    precision: str = "float32",
    batch: int = 1,
    chunk: int = 0,
    prompt: int = 60,
    output: int = 20,
    layout: str = "contiguous",
    block: int = 16,
    bits: int = 0,
    sharing: str = "off",
    budget: int = 0,
    overflow: str = "wait",
) -> EngineConfig:
    return EngineConfig(
        WorkloadConfig(prompt, output),
        ScheduleConfig(batch, chunk),
        RunConfig(precision),
        CacheConfig(layout, block, bits, sharing),
        memory=MemoryConfig(budget, overflow),
    )


def squeezed(model: Llama, config: EngineConfig, units: int, beside: int = 0) -> EngineConfig:
    """`config` in the smallest vessel that leaves its cache at least `units` slots or blocks, with
    `beside` bytes taken by a draft."""
    for percent in range(1, 10_000):
        tight = msgspec.structs.replace(
            config, memory=MemoryConfig(percent, config.memory.overflow)
        )
        try:
            plan = fit_cache(tight, model.config, model.weight_bytes + beside)
        except BudgetError:
            continue
        if plan.units >= units:
            return tight
    raise AssertionError(f"no vessel holds {units} units")


def greedy(count: int, ignore_eos: bool = True) -> SamplingParams:
    return SamplingParams(max_tokens=count, ignore_eos=ignore_eos)


def drain(engine: Engine) -> tuple[dict[int, list[int]], list[StepOutput]]:
    """Every request's tokens, and every step, until no work is left."""
    outputs: dict[int, list[int]] = {}
    steps = []
    while engine.has_work:
        steps.append(engine.step())
        for request, tokens in steps[-1].tokens.items():
            outputs.setdefault(request, []).extend(tokens)
    return outputs, steps


def serve(
    engine: Engine, requests: Iterable[tuple[list[int], SamplingParams]]
) -> tuple[list[list[int]], list[StepOutput]]:
    """All requests at once, served to the end: each one's tokens in order, and every step."""
    ids = [engine.add_request(prompt, params) for prompt, params in requests]
    outputs, steps = drain(engine)
    return [outputs[request] for request in ids], steps


def by_rescoring(model: Llama, ids: list[int], count: int) -> list[int]:
    """Greedy decoding without a cache: the whole text is scored again for every token."""
    text = list(ids)
    for _ in range(count):
        text.append(int(scoring.logits(model, text)[-1].argmax()))
    return text[len(ids) :]


def same_but_for_near_ties(
    model: Llama, ids: list[int], got: list[int], expected: list[int]
) -> None:
    """Batched rows round differently: a first difference must lie within that rounding."""
    assert len(got) == len(expected)
    for place, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        if ours != theirs:
            row: Tensor = scoring.logits(model, ids + expected[:place])[-1]
            assert float(row.max() - row[ours]) < NEAR_TIE
            return
