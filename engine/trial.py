"""What a trial is asked to do and what came back: raw samples, never a judgement.

Durations are seconds, sizes bytes, unless a name says otherwise.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.config import EngineConfig
from engine.domains import Value
from engine.draft_report import DraftReport
from engine.machine import Ceilings
from engine.quality_report import Quality, Rung
from engine.quantised import Quantised

TrialKind = Literal["timeline", "paired", "hold", "serve"]
Op = Literal[">=", "<="]


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Bound(_Value, frozen=True):
    """A goal as the engine needs it to know when it has looked enough."""

    metric: str
    op: Op
    bound: float


class TrialSpec(_Value, frozen=True):
    """`timeline` repeats one build; `paired` compares it with `reference` in ABBA order.

    `hold` repeats one build as `timeline` does and counts what it holds at once; running out of
    the memory budget ends it with a `flood`. The reference is made ready for its account alone.
    `serve` compares two builds on whole loads of requests, in ABBA order. `probes` asks questions
    and lays answers side by side; `ladder` lists widths whose rounding to nearest is to be scored.
    """

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
    probes: bool = False
    ladder: tuple[int, ...] = ()


class DraftCounters(_Value, frozen=True):
    """What became of drafts, summed over requests.

    `steps` are verifications of a request that had a draft, `bare` decode steps of one that had
    none. Place i of a draft was offered `offered[i]` times and stood `stood[i]` times.
    """

    steps: int = 0
    bare: int = 0
    offered: tuple[int, ...] = ()
    stood: tuple[int, ...] = ()

    @property
    def drafted(self) -> int:
        return sum(self.offered)

    @property
    def accepted(self) -> int:
        return sum(self.stood)


class DraftSample(_Value, frozen=True):
    """Drafts in one run: what became of them, and of the seconds of its decode steps those that
    went into drafting and into the target's passes; the rest is bookkeeping."""

    counters: DraftCounters
    draft_seconds: float
    verify_seconds: float


class RunSample(_Value, frozen=True):
    """One timed run of a build: `batch` requests started together, output length fixed.

    `ttft` holds one entry a request (start of the run to its first token). `step_seconds` are the
    decode steps. `prefill_seconds` covers every request's prompt; `other_seconds` is what neither
    phase claims (tokenising, sampling set-up). Wall = prefill + sum(steps) + other.
    `peak_live_tokens` are the most tokens whose keys and values the cache held at once (0: not
    counted).

    Where nobody drafts, each step gives every request a token, and all end with the last step.
    Where somebody does, `given` holds for each request the tokens of every step (a mean over the
    episodes of a timed unit), `finished` when each had its last, and `draft` what became of drafts.
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
    peak_live_tokens: int = 0
    given: tuple[tuple[float, ...], ...] = ()
    finished: tuple[float, ...] = ()
    draft: DraftSample | None = None

    @property
    def decode_seconds(self) -> float:
        return sum(self.step_seconds)


class Pair(_Value, frozen=True):
    """`order` is "AB" or "BA": A is the reference, B the candidate."""

    order: Literal["AB", "BA"]
    reference: RunSample
    candidate: RunSample


class RequestSample(_Value, frozen=True):
    """One request of a served load. Times run from the start of the load.

    `queued` lasts until the pass that first ran one of its tokens; `gaps` is its ITL list, one
    entry a token after the first; `cached_tokens` of its prompt were found in the prefix cache on
    its first admission; `preemptions` counts how often it was put back.
    """

    kind: Literal["chat", "document"]
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    queued: float
    ttft: float
    finished: float
    gaps: tuple[float, ...]
    preemptions: int = 0


class LoadSample(_Value, frozen=True):
    """One timed run of a whole load: every request handed in at the start, run to the last token.

    `prefilled_tokens` are the rows that prefill passes ran, those computed a second time after a
    preemption (`recomputed_tokens`) among them. `held_tokens`, `reserved_tokens` and `mean_running`
    are means over the moments after each pass: of distinct tokens in the cache, of the token slots
    set aside for running requests, and of those requests' number. `copies` counts blocks copied on
    write. `work` is what this load could not avoid (None: not counted). Wall = prefill + decode +
    other.
    """

    requests: tuple[RequestSample, ...]
    prefill_seconds: float
    decode_seconds: float
    other_seconds: float
    wall_seconds: float
    prefill_passes: int
    decode_steps: int
    prefilled_tokens: int
    recomputed_tokens: int
    preemptions: int
    held_tokens: float
    reserved_tokens: float
    peak_live_tokens: int
    most_running: int
    copies: int
    output_digest: str
    mean_running: float = 0.0
    work: PhaseWork | None = None

    @property
    def prompt_tokens(self) -> int:
        return sum(request.prompt_tokens for request in self.requests)

    @property
    def output_tokens(self) -> int:
        return sum(request.output_tokens for request in self.requests)

    @property
    def cached_tokens(self) -> int:
        return sum(request.cached_tokens for request in self.requests)


class LoadPair(_Value, frozen=True):
    """`order` is "AB" or "BA": A is the reference, B the candidate. Both serve one load."""

    order: Literal["AB", "BA"]
    reference: LoadSample
    candidate: LoadSample


class Work(_Value, frozen=True):
    """Counted, not timed: bytes that must be read, operations, operator calls."""

    bytes_moved: float
    flops: float
    dispatches: float


class PhaseWork(_Value, frozen=True):
    """`prefill` is one run's whole prefill; `decode` one mean decode step of that run.

    Of a served load: the prefill of all its requests, and the mean of its decode steps.
    """

    precision: str
    prefill: Work
    decode: Work


class MemoryAccount(_Value, frozen=True):
    """The engine's exact account, by part: weights, kv, activations, scratch.

    `kv_tokens` are the token slots that the part `kv` holds, `weight_elements` the distinct weights
    of the model's matrices (0: not counted).
    """

    predicted: dict[str, int]
    allocated: dict[str, int]
    resident_bytes: int
    kv_tokens: int = 0
    weight_elements: int = 0

    @property
    def predicted_bytes(self) -> int:
        return sum(self.predicted.values())

    @property
    def allocated_bytes(self) -> int:
        return sum(self.allocated.values())


class Ledger(_Value, frozen=True):
    """The engine's account at one moment: bytes reserved by part, and what of it is in use.

    `budget` is the vessel in bytes, None without one. `held_bytes` of the part `kv` hold keys and
    values of `live_tokens` distinct tokens; the rest of `kv` is reserved and empty.
    """

    budget: int | None
    parts: dict[str, int]
    held_bytes: int
    live_tokens: int

    @property
    def reserved_bytes(self) -> int:
        return sum(self.parts.values())


class Flood(_Value, frozen=True):
    """The budget broke: the account of that moment, and what was asked beyond it.

    `running` requests were held when one more asked for `asked_bytes`; `free_bytes` were left.
    `fits` is the largest number of these requests that the vessel holds.
    """

    ledger: Ledger
    asked_bytes: int
    free_bytes: int
    running: int
    requests: int
    fits: int


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
    """Everything the judge needs. `singles` for timeline and hold trials, `pairs` for paired
    ones, `load_pairs` for served ones. `ledger` is the candidate's account when most was held;
    `flood` is there where the memory budget broke. Memory accounts hold bytes by part."""

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
    load_pairs: tuple[LoadPair, ...] = ()
    ledger: Ledger | None = None
    flood: Flood | None = None
    quantised: Quantised | None = None
    ladder: tuple[Rung, ...] = ()
    draft: DraftReport | None = None
