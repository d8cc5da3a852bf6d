"""Canned loads of the paging hall, served in pairs: contiguous slots against pages.

The vessel of 387 MB holds three contiguous slots of 688 tokens beside the weights. Loads are played
through a plain model of continuous batching, so that every identity of a `LoadSample` holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import msgspec
from canned_memory import (
    FULL_TOKEN,
    KL,
    TOKEN_BYTES,
    TOP1,
    account,
    config_of,
    ledger,
    others,
    slots,
    vessel,
)
from canned_trials import MODEL, Case, make_result, spreads

from engine.config import EngineConfig
from engine.domains import Value
from engine.load import RequestShape, draw_load
from engine.messages import AnyEvent, Pages, Progress, Step
from engine.page_map import PageMap
from engine.quality_report import Quality
from engine.trial import (
    Bound,
    LoadPair,
    LoadSample,
    PhaseWork,
    RequestSample,
    TrialResult,
    TrialSpec,
    Work,
)

PAGING: dict[str, Value] = {
    "workload.mix": "mixed",
    "workload.prompt": 640,
    "workload.output": 48,
    "workload.requests": 16,
    "workload.system": 96,
    "schedule.batch": 16,
    "run.precision": "bfloat16",
    "cache.layout": "contiguous",
    "memory.budget": 72,
}
PAGING_BUILDS: dict[Case, dict[str, Value]] = {
    "pass": {"cache.layout": "paged", "cache.block_size": 16, "cache.prefix_sharing": "on"},
    "fail": {},
    "straddle": {"cache.layout": "paged", "cache.block_size": 16},
}
PAGING_BOUNDS = (Bound("memory_use", ">=", 0.9), Bound("throughput_ratio", ">=", 1.5))


def make_serve(
    case: Case = "pass", build: dict[str, Value] | None = None, seed: int = 7
) -> TrialResult:
    """A trial of the array. pass: paged, sharing. fail: the default build. straddle: its
    throughput is made to lie on the bound."""
    build = PAGING | (PAGING_BUILDS.get(case, {}) if build is None else build)
    config, reference = config_of(build), config_of(PAGING)
    shapes = draw_load(reference, seed)
    count, sigma = (32, 0.05) if case == "straddle" else (8, 0.01)
    left, right = spreads(count, sigma, seed), spreads(count, sigma, seed + 1)
    slow, fast = serve(reference, shapes), serve(config, shapes)
    gain = slow.wall_seconds / fast.wall_seconds
    on_bound = gain / 1.5 if case == "straddle" else 1.0
    pairs = tuple(
        LoadPair(
            "AB" if number % 2 == 0 else "BA",
            stretched(slow, left[number]),
            stretched(fast, right[number] * on_bound),
        )
        for number in range(count)
    )
    blocks = config.cache.layout == "paged"
    room = (vessel(config) - others(config)) // FULL_TOKEN
    reserved = room // config.cache.block_size * config.cache.block_size
    longest = config.workload.prompt + config.workload.output
    memory = account(config, reserved if blocks else slots(config) * longest)
    return msgspec.structs.replace(
        make_result("gate"),
        spec=TrialSpec("paging", "serve", build, PAGING, seed, bounds=PAGING_BOUNDS),
        config=config,
        reference_config=reference,
        singles=(),
        load_pairs=pairs,
        candidate_work=load_work(config, fast),
        reference_work=load_work(reference, slow),
        memory=memory,
        reference_memory=account(reference, slots(reference) * longest),
        quality=Quality(KL[0], TOP1[0], 1.0, 2048, "ab" * 32),
        prefix_hit_rate=fast.cached_tokens / fast.prompt_tokens,
        ledger=ledger(config, fast.peak_live_tokens, memory.predicted["kv"] // FULL_TOKEN),
    )


OTHER = 2e-3
"""Seconds of a load that neither phase claims."""


@dataclass
class _Running:
    number: int
    shape: RequestShape
    cached: int
    queued: float
    held: int = 0
    given: int = 0
    ttft: float = 0.0
    last: float = 0.0
    gaps: list[float] = field(default_factory=list)


@dataclass
class _Clock:
    """Seconds by phase, and what every pass found in the cache."""

    prefill: float = 0.0
    decode: float = 0.0
    held: list[int] = field(default_factory=list)
    reserved: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)

    @property
    def now(self) -> float:
        return OTHER + self.prefill + self.decode


def serve(config: EngineConfig, shapes: tuple[RequestShape, ...]) -> LoadSample:
    """One load: prefill 0.7 ms a row, decode 16 ms a step and 0.5 ms a request.

    Contiguous: a slot of the longest length each. Paged: blocks while the vessel has them; with
    sharing, the shared beginning is kept once and computed once.
    """
    waiting, clock = list(shapes), _Clock()
    running: list[_Running] = []
    done: list[tuple[_Running, float]] = []
    copies = 0
    while waiting or running:
        while waiting and len(running) < config.schedule.batch and _fits(config, running, waiting):
            shape = waiting.pop(0)
            shared = config.workload.system if _sharing(config) and (running or done) else 0
            copies += 1 if shared % config.cache.block_size else 0
            number = len(running) + len(done)
            one = _Running(number, shape, shared, clock.now, held=shape.prompt)
            clock.prefill += 0.7e-3 * (shape.prompt - shared)
            one.given, one.ttft, one.last = 1, clock.now, clock.now
            running.append(one)
            _look(config, clock, running)
        clock.decode += 16e-3 + 0.5e-3 * len(running)
        for one in running:
            one.held, one.given = one.held + 1, one.given + 1
            one.gaps.append(clock.now - one.last)
            one.last = clock.now
        _look(config, clock, running)
        done += [(one, clock.now) for one in running if one.given == one.shape.output]
        running = [one for one in running if one.given < one.shape.output]
    done.sort(key=lambda pair: pair[0].number)
    sample = LoadSample(
        requests=tuple(
            RequestSample(
                one.shape.kind, one.shape.prompt, one.shape.output, one.cached, one.queued,
                one.ttft, end, tuple(one.gaps),
            )
            for one, end in done
        ),
        prefill_seconds=clock.prefill,
        decode_seconds=clock.decode,
        other_seconds=OTHER,
        wall_seconds=clock.now,
        prefill_passes=len(shapes),
        decode_steps=len(clock.held) - len(shapes),
        prefilled_tokens=sum(one.shape.prompt - one.cached for one, _ in done),
        recomputed_tokens=0,
        preemptions=0,
        held_tokens=sum(clock.held) / len(clock.held),
        reserved_tokens=sum(clock.reserved) / len(clock.reserved),
        peak_live_tokens=max(clock.held),
        most_running=max(clock.running),
        copies=copies,
        output_digest="1e" * 16,
        mean_running=sum(clock.running) / len(clock.running),
    )  # fmt: skip
    return msgspec.structs.replace(sample, work=load_work(config, sample))


def stretched(sample: LoadSample, factor: float) -> LoadSample:
    """The same load, everything lasting `factor` times as long."""
    return msgspec.structs.replace(
        sample,
        requests=tuple(
            msgspec.structs.replace(
                request,
                queued=request.queued * factor,
                ttft=request.ttft * factor,
                finished=request.finished * factor,
                gaps=tuple(gap * factor for gap in request.gaps),
            )
            for request in sample.requests
        ),
        prefill_seconds=sample.prefill_seconds * factor,
        decode_seconds=sample.decode_seconds * factor,
        other_seconds=sample.other_seconds * factor,
        wall_seconds=sample.wall_seconds * factor,
    )


def load_work(config: EngineConfig, sample: LoadSample) -> PhaseWork:
    """Of the whole load's prefill, and of one mean decode step: weights read, rows multiplied."""
    layers = 2.0 * MODEL.layers * MODEL.layer_matrix_elements
    weights = MODEL.matrix_elements * 2.0
    rows = (sample.output_tokens - len(sample.requests)) / sample.decode_steps
    read = sample.held_tokens * TOKEN_BYTES[config.cache.bits]
    return PhaseWork(
        precision=config.run.precision,
        prefill=Work(
            weights * sample.prefill_passes, layers * sample.prefilled_tokens, 600.0 * 16
        ),
        decode=Work(weights + read, 2.0 * MODEL.matrix_elements * rows, 600.0),
    )  # fmt: skip


def make_pages(config: EngineConfig, full: int = 40) -> PageMap:
    """A cache in the middle of a load: `full` cells that hold tokens everywhere."""
    if config.cache.layout == "contiguous":
        longest, count, size = config.workload.prompt + config.workload.output, slots(config), 16
        cells, held = "", 0
        for number in range(count):
            used = (full // 2, full // 8, full // 4)[number % 3]
            cells += "F" * used + "t" + "r" * (-(-longest // size) - used - 1)
            held += used * size + 9
        return PageMap("contiguous", size, cells, held, count * longest)
    size = config.cache.block_size
    total = (vessel(config) - others(config)) // (size * TOKEN_BYTES[config.cache.bits])
    shared = config.workload.system // size if _sharing(config) else 0
    tails = config.schedule.batch // 2
    cells = ("S" * shared + "F" * full + "t" * tails + "cc").ljust(total, ".")[:total]
    held = (shared + full) * size + tails * (size // 2 or 1)
    copied = ((shared, shared + full), (shared, shared + full + 1)) if shared else ()
    reserved = (shared + full + tails) * size
    return PageMap("paged", size, cells, min(held, reserved), reserved, len(copied), copied)


def pages_events(case: Case = "pass", job: int = 1) -> list[AnyEvent]:
    """A trial of the array in its third pair, both builds' pages seen."""
    result = make_serve(case)
    config, reference = result.config, result.reference_config
    most = result.load_pairs[0].candidate.most_running
    hits = result.load_pairs[0].candidate.cached_tokens
    return [
        Progress(job, "warmup", 2, 4),
        Progress(job, "pairs", 2, 8, order="A", seconds_left=40.0),
        Step(job, "decode", "reference", 3, 500, {"prefill": 0.6e-3, "decode": 5.8e-3}),
        Pages(job, "reference", make_pages(reference, 30), 3, 9, 4),
        Progress(job, "pairs", 2, 8, order="B", seconds_left=38.0),
        Step(job, "decode", "candidate", most, 500, {"prefill": 0.6e-3, "decode": 2.2e-3}),
        Pages(job, "candidate", make_pages(config), most, 4, 2, preemptions=1, hit_tokens=hits),
    ]


def _sharing(config: EngineConfig) -> bool:
    return config.cache.layout == "paged" and config.cache.prefix_sharing == "on"


def _fits(config: EngineConfig, running: list[_Running], waiting: list[RequestShape]) -> bool:
    if config.cache.layout == "contiguous":
        return len(running) < slots(config)
    size = config.cache.block_size
    need = math.ceil((waiting[0].prompt + waiting[0].output) / size)
    total = (vessel(config) - others(config)) // (size * TOKEN_BYTES[config.cache.bits])
    whole = sum(math.ceil((one.shape.prompt + one.shape.output) / size) for one in running)
    return whole + need <= total


def _look(config: EngineConfig, clock: _Clock, running: list[_Running]) -> None:
    """What the cache holds after a pass."""
    held = sum(one.held for one in running)
    if config.cache.layout == "contiguous":
        reserved = len(running) * (config.workload.prompt + config.workload.output)
    else:
        size = config.cache.block_size
        twice = config.workload.system * (len(running) - 1) if _sharing(config) else 0
        held -= twice
        reserved = sum(math.ceil(one.held / size) * size for one in running) - twice // size * size
    clock.held.append(held)
    clock.reserved.append(reserved)
    clock.running.append(len(running))
