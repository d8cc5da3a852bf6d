"""Canned trials of the abyss: what a cache held at once, and a vessel that broke.

The vessel is 511 MB (95 % of the default model's matrices in float32), with 326 MB of bfloat16
weights in it; a cached token takes 23,040 bytes, at 8 bits 11,880, at 4 bits 6,840.
`canned_serving` has the array's loads, `canned_memory_verdicts` the verdicts of both.
"""

from __future__ import annotations

import msgspec
from canned_trials import MODEL, Case, make_result, make_sample, make_work, spreads

from engine.config import EngineConfig, complete
from engine.domains import Value
from engine.messages import Account, AnyEvent, Progress, Step
from engine.quality_report import Quality
from engine.trial import Bound, Flood, Ledger, MemoryAccount, TrialResult, TrialSpec

FULL_TOKEN = 23_040
TOKEN_BYTES = {0: FULL_TOKEN, 16: FULL_TOKEN, 8: 11_880, 4: 6_840}
"""Bytes of a cached token over all layers: 2 x 30 layers x 3 heads x (128 | 64 + 2 | 32 + 4)."""
WEIGHTS = {"float32": 651_000_000, "bfloat16": 326_000_000, "float16": 326_000_000}
ACTIVATIONS, SCRATCH = 9_000_000, 128
KL = {0: 0.0006, 16: 0.0006, 8: 0.0013, 4: 0.107}
TOP1 = {0: 0.984, 16: 0.984, 8: 0.976, 4: 0.78}

ABYSS: dict[str, Value] = {
    "workload.prompt": 1024,
    "workload.output": 8,
    "schedule.batch": 1,
    "run.precision": "bfloat16",
    "cache.bits": 0,
    "memory.budget": 95,
    "memory.overflow": "break",
}
ABYSS_REFERENCE = ABYSS | {"workload.prompt": 2040}
ABYSS_BUILDS: dict[Case, dict[str, Value]] = {
    "pass": {"schedule.batch": 8, "cache.bits": 8},
    "fail": {},
    "flooded": {"schedule.batch": 8},
}
ABYSS_BOUNDS = (Bound("live_tokens", ">=", 8192), Bound("kl", "<=", 0.01))


def config_of(build: dict[str, Value]) -> EngineConfig:
    sections: dict[str, dict[str, Value]] = {}
    for name, value in complete(build).items():
        section, key = name.split(".")
        sections.setdefault(section, {})[key] = value
    sections["run"]["threads"] = 2
    return msgspec.convert(sections, EngineConfig)


def vessel(config: EngineConfig) -> int:
    return int(config.memory.budget * MODEL.matrix_elements * 4 // 100)


def others(config: EngineConfig) -> int:
    return WEIGHTS[config.run.precision] + ACTIVATIONS + SCRATCH


def slots(config: EngineConfig) -> int:
    """Contiguous slots that the vessel leaves room for."""
    longest = config.workload.prompt + config.workload.output
    fit = (vessel(config) - others(config)) // (longest * TOKEN_BYTES[config.cache.bits])
    return min(config.schedule.batch, max(fit, 0))


def account(config: EngineConfig, tokens: int) -> MemoryAccount:
    """`tokens` slots of KV beside weights and working memory."""
    parts = {
        "weights": WEIGHTS[config.run.precision],
        "kv": tokens * TOKEN_BYTES[config.cache.bits],
        "activations": ACTIVATIONS,
        "scratch": SCRATCH,
    }
    allocated = parts | {"activations": ACTIVATIONS + (1 << 18)}
    return MemoryAccount(
        predicted=parts, allocated=allocated, resident_bytes=1_400_000_000, kv_tokens=tokens
    )


def ledger(config: EngineConfig, held: int, reserved: int) -> Ledger:
    """`held` tokens in `reserved` token slots."""
    return Ledger(
        budget=vessel(config) or None,
        parts=account(config, reserved).allocated,
        held_bytes=held * TOKEN_BYTES[config.cache.bits],
        live_tokens=held,
    )


def abyss_case(build: dict[str, Value]) -> Case:
    """What becomes of a build in the abyss: more than the vessel holds floods, few tokens fail."""
    config = config_of(ABYSS | build)
    if slots(config) < config.schedule.batch:
        return "flooded"
    held = config.schedule.batch * (config.workload.prompt + config.workload.output - 1)
    return "pass" if held >= 8192 and config.cache.bits != 4 else "fail"


def make_flood(config: EngineConfig) -> Flood:
    """The first request that finds no slot in the vessel."""
    running = slots(config)
    longest = config.workload.prompt + config.workload.output
    account = ledger(config, running * (config.workload.prompt + 1), running * longest)
    return Flood(
        ledger=account,
        asked_bytes=longest * TOKEN_BYTES[config.cache.bits],
        free_bytes=vessel(config) - account.reserved_bytes,
        running=running,
        requests=config.schedule.batch,
        fits=running,
    )


def make_hold(
    case: Case = "pass", build: dict[str, Value] | None = None, seed: int = 7
) -> TrialResult:
    """A trial of the abyss. `flooded` breaks the vessel whatever the build; else all requests of
    the build are held at once."""
    build = ABYSS | (ABYSS_BUILDS.get(case, {}) if build is None else build)
    if case == "flooded" and slots(config_of(build)) >= int(build["schedule.batch"]):
        build |= ABYSS_BUILDS["flooded"] | {"cache.bits": 0}
    config, reference = config_of(build), config_of(ABYSS_REFERENCE)
    batch, work = config.schedule.batch, config.workload
    held, reserved = batch * (work.prompt + work.output - 1), batch * (work.prompt + work.output)
    flooded = case == "flooded"
    flood = make_flood(config) if flooded else None
    kept = ledger(config, held, reserved) if flood is None else flood.ledger
    memory = account(config, reserved)
    if flood is not None:
        memory = account(config, flood.running * (reserved // batch))
    bits = config.cache.bits
    runs = tuple(
        msgspec.structs.replace(make_sample(config, factor), peak_live_tokens=held)
        for factor in spreads(8, 0.01, seed)
    )
    return msgspec.structs.replace(
        make_result("gate"),
        spec=TrialSpec("abyss", "hold", build, ABYSS_REFERENCE, seed, bounds=ABYSS_BOUNDS),
        config=config,
        reference_config=reference,
        singles=() if flooded else runs,
        candidate_work=make_work(config),
        reference_work=make_work(reference),
        memory=memory,
        reference_memory=account(reference, 2048),
        quality=None if flooded else Quality(KL[bits], TOP1[bits], 1.0, 2048, "ab" * 32),
        ledger=kept,
        flood=flood,
    )


def account_events(case: Case = "pass", job: int = 1) -> list[AnyEvent]:
    """A trial of the abyss as it is watched: the water rises; `flooded` breaks the vessel."""
    result = make_hold(case)
    config, account = result.config, result.ledger
    assert account is not None
    rising = [
        msgspec.structs.replace(
            account,
            held_bytes=account.held_bytes * part // 4,
            live_tokens=account.live_tokens * part // 4,
        )
        for part in (1, 2, 3, 4)
    ]
    batch = config.schedule.batch
    events: list[AnyEvent] = [
        Progress(job, "warmup", 0, 3),
        *(Account(job, "candidate", one) for one in rising[:2]),
        Progress(job, "runs", 2, 8, seconds_left=9.0),
        Step(job, "prefill", "candidate", batch, config.workload.prompt, {"prefill": 0.6e-3}),
        *(Account(job, "candidate", one) for one in rising[2:]),
    ]
    if result.flood is not None:
        events.append(Account(job, "candidate", account, flood=result.flood))
    return events
