"""The loads a served trial draws: how many requests, how long each, which share a beginning.

Torch-free: the forge prices a load, the worker draws its words. Shapes depend on the seed and the
workload alone, never on the build, so that two builds serve the same load.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from engine.config import EngineConfig

RequestKind = Literal["chat", "document"]

DOCUMENT_EVERY = 3
"""Every third request is a long document, in a drawn order; the rest are short chats."""


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
    and U(1/2, 1) O answer tokens, a chat S + U(1/16, 1/6) (P - S) and U(1/2, 1) O; at least one of
    each everywhere. U(a, b) is drawn uniformly.
    """
    work = config.workload
    count = request_count(config)
    if work.mix == "uniform":
        return (RequestShape("chat", work.prompt, work.output),) * count
    source = random.Random(f"load/{seed}")
    kinds: list[RequestKind] = [
        "document" if number % DOCUMENT_EVERY == 0 else "chat" for number in range(count)
    ]
    source.shuffle(kinds)
    own = work.prompt - work.system
    shapes = []
    for kind in kinds:
        low, high = (1 / 2, 1.0) if kind == "document" else (1 / 16, 1 / 6)
        prompt = work.system + max(round(own * source.uniform(low, high)), 1)
        output = max(round(work.output * source.uniform(1 / 2, 1.0)), 2)
        shapes.append(RequestShape(kind, prompt, output))
    return tuple(shapes)
