"""What a trial is asked to do and what came back: raw samples, never a judgement.

Durations are seconds, sizes bytes, unless a name says otherwise.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.config import EngineConfig
from engine.knobs import Value
from engine.machine import Ceilings

TrialKind = Literal["timeline", "paired"]
Op = Literal[">=", "<="]


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Bound(_Value, frozen=True):
    """A goal as the engine needs it to know when it has looked enough."""

    metric: str
    op: Op
    bound: float


class TrialSpec(_Value, frozen=True):
    """`timeline` repeats one build; `paired` compares it with `reference` in ABBA order."""

    stage: str
    kind: TrialKind
    build: dict[str, Value]
    reference: dict[str, Value]
    seed: int
    bounds: tuple[Bound, ...] = ()
    repeats: int = 8
    looks: tuple[int, ...] = (8, 16, 32)
    alpha: float = 0.0167
    dead_band: float = 0.01
    quality: bool = True


class RunSample(_Value, frozen=True):
    """One timed run of a build: `batch` requests started together, output length fixed.

    `ttft` holds one entry a request (start of the run to its first token). `step_seconds` are the
    decode steps, each giving `batch` tokens, so a request's ITL list is `step_seconds`.
    `prefill_seconds` covers every request's prompt; `other_seconds` is what neither phase claims
    (tokenising, sampling set-up). Wall = prefill + sum(steps) + other.
    """

    batch: int
    prompt_tokens: int
    output_tokens: int
    ttft: tuple[float, ...]
    prefill_seconds: float
    step_seconds: tuple[float, ...]
    other_seconds: float
    wall_seconds: float
    output_digest: str

    @property
    def decode_seconds(self) -> float:
        return sum(self.step_seconds)


class Pair(_Value, frozen=True):
    """`order` is "AB" or "BA": A is the reference, B the candidate."""

    order: Literal["AB", "BA"]
    reference: RunSample
    candidate: RunSample


class Work(_Value, frozen=True):
    """Counted, not timed: bytes that must be read, operations, operator calls."""

    bytes_moved: float
    flops: float
    dispatches: float


class PhaseWork(_Value, frozen=True):
    """`prefill` is one run's whole prefill; `decode` one mean decode step of that run."""

    precision: str
    prefill: Work
    decode: Work


class MemoryAccount(_Value, frozen=True):
    """The engine's exact account, by part: weights, kv, activations, scratch."""

    predicted: dict[str, int]
    allocated: dict[str, int]
    resident_bytes: int

    @property
    def predicted_bytes(self) -> int:
        return sum(self.predicted.values())

    @property
    def allocated_bytes(self) -> int:
        return sum(self.allocated.values())


class Quality(_Value, frozen=True):
    """Against the float32 model, teacher-forced: mean KL (nats a token), share of equal top-1."""

    kl: float
    top1: float
    perplexity_ratio: float
    scored_tokens: int
    text_digest: str


class Fault(_Value, frozen=True):
    """Why a trial cannot be judged; `code` names a line of interface text, `details` fill it.

    Codes: noise, throttled, too_fast, wrong_output, worker_died, aborted, unstable.
    """

    code: str
    details: dict[str, str] = {}


class Environment(_Value, frozen=True):
    fingerprint: str
    platform: str
    python_version: str
    torch_version: str
    threads: int
    wait_policy: str
    clock_verified: bool
    model_digest: str
    model_name: str
    started_at: str


class TrialResult(_Value, frozen=True):
    """Everything the judge needs. `singles` for timeline trials, `pairs` for paired ones."""

    spec: TrialSpec
    config: EngineConfig
    reference_config: EngineConfig
    reasons: dict[str, str]
    pairs: tuple[Pair, ...]
    singles: tuple[RunSample, ...]
    warmup_runs: int
    load_seconds: float
    candidate_work: PhaseWork
    reference_work: PhaseWork
    memory: MemoryAccount
    reference_memory: MemoryAccount
    quality: Quality | None
    kernel_path: dict[str, str]
    reference_kernel_path: dict[str, str]
    prefix_hit_rate: float
    ceilings: Ceilings
    noise: float
    faults: tuple[Fault, ...]
    environment: Environment
    sample_text: str = ""
