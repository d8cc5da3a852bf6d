"""The loads a served trial draws: how many requests, how long each, which share a beginning.

Torch-free: the forge prices a load, the worker draws its words. Shapes depend on the seed and the
workload alone, never on the build, so that two builds serve the same load.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from engine.config import EngineConfig, WorkloadConfig

RequestKind = Literal["chat", "document"]

DOCUMENT_EVERY = 3
"""Every third request is a long document, in a drawn order; the rest are short chats."""

PROMPT_SHARES: Mapping[RequestKind, tuple[float, float]] = {
    "document": (1 / 2, 1.0),
    "chat": (1 / 16, 1 / 6),
}
OUTPUT_SHARES = (1 / 2, 1.0)
"""Between which shares of the longest a mixed load draws: of a prompt's own part, of an answer."""

LEAST_OWN, LEAST_OUTPUT = 16, 4
"""A mixed load needs a longest own part and a longest answer of this many tokens: the least draw is
then one token of its own, and two of an answer."""


@dataclass(frozen=True)
class RequestShape:
    """One request: prompt (the shared beginning included) and answer, in tokens."""

    kind: RequestKind
    prompt: int
    output: int


def request_count(config: EngineConfig) -> int:
    """Requests of one load: `workload.requests`, or as many as the batch."""
    return config.workload.requests or config.schedule.batch


def draw_load(config: EngineConfig, seed: int) -> tuple[RequestShape, ...]:
    """The shapes of a load, in order of arrival.

    `uniform`: every request as long as the workload says. `mixed`: with P the longest prompt, S its
    shared beginning and O the longest answer, a document has S + U(1/2, 1) (P - S) prompt tokens
    and U(1/2, 1) O answer tokens, a chat S + U(1/16, 1/6) (P - S) and U(1/2, 1) O: at least one
    token after S, and an answer of two. U(a, b) is drawn uniformly.
    """
    work = config.workload
    count = request_count(config)
    if work.mix == "uniform":
        return (RequestShape("chat", work.prompt, work.output),) * count
    source = random.Random(f"load/{seed}")
    kinds = _kinds(count)
    source.shuffle(kinds)
    return tuple(
        _shape(work, kind, source.uniform(*PROMPT_SHARES[kind]), source.uniform(*OUTPUT_SHARES))
        for kind in kinds
    )


def mean_load(config: EngineConfig) -> tuple[RequestShape, ...]:
    """A load with every length at its mean, documents spread among the chats: what is priced."""
    work = config.workload
    count = request_count(config)
    if work.mix == "uniform":
        return (RequestShape("chat", work.prompt, work.output),) * count
    answer = fmean(OUTPUT_SHARES)
    means: dict[RequestKind, RequestShape] = {
        kind: _shape(work, kind, fmean(shares), answer) for kind, shares in PROMPT_SHARES.items()
    }
    return tuple(means[kind] for kind in _kinds(count))


def _kinds(count: int) -> list[RequestKind]:
    return ["document" if number % DOCUMENT_EVERY == 0 else "chat" for number in range(count)]


def _shape(
    work: WorkloadConfig, kind: RequestKind, own_share: float, output_share: float
) -> RequestShape:
    own = max(round((work.prompt - work.system) * own_share), 1)
    return RequestShape(kind, work.system + own, max(round(work.output * output_share), 2))
