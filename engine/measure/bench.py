"""The bench: this machine's ceilings, the engine's rates, and how near one comes to the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import msgspec
import torch

from engine.capabilities import Capabilities
from engine.config import EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.machine import Ceilings, MachineProfile, save_profile
from engine.measure import peer
from engine.measure.ceilings import highest, measure_ceilings
from engine.measure.harness import OnBench
from engine.measure.reporter import Reporter
from engine.measure.run_harness import RunHarness
from engine.measure.shelf import Shelf
from engine.measure.timing import Clock, system_clock
from engine.measure.workload import Workload, corpus_text
from engine.messages import BenchDone, Event, Rate
from engine.metrics import Phase, binding, phase_seconds
from engine.price import price
from engine.run.engine import Engine
from engine.trial import RunSample

PRECISIONS = ("float32", "bfloat16")
RUNS = 5
PEER_PAIRS = 4


@dataclass(frozen=True)
class Load:
    """One row of the bench: a phase timed at a batch and a prompt length."""

    phase: Phase
    prompt: int
    output: int
    batch: int


LOADS = (
    Load("prefill", 128, 2, 1),
    Load("prefill", 512, 2, 1),
    Load("decode", 32, 24, 1),
    Load("decode", 32, 24, 4),
    Load("decode", 32, 24, 16),
)


def bench(
    shelf: Shelf,
    machine: MachineProfile,
    capabilities: Capabilities,
    emit: Callable[[Event], None],
    aborted: Callable[[], bool],
    *,
    peers: bool = False,
    job: int = 0,
    clock: Clock = system_clock,
    loads: Sequence[Load] = LOADS,
    ceiling_seconds: float = 6.0,
) -> BenchDone:
    """Measure the ceilings again (they only rise; they are saved), then every load by precision.

    With `peers`, decode and prefill at batch 1 run beside transformers in ABBA order; where it is
    missing, a Progress event says so and the rows stand alone.

    Raises:
        Aborted: the player stopped it.
    """
    desk = Reporter(job, emit, aborted, clock)
    precisions = [name for name in PRECISIONS if capabilities.precisions.get(name) == ""]
    fitting = [one for one in loads if one.prompt + one.output <= shelf.config.context]
    total = len(precisions) * len(fitting) + 1
    desk.progress("bench", 0, total, detail="ceilings")
    torch.set_num_threads(machine.threads)
    again = measure_ceilings(precisions, ceiling_seconds, clock)
    profile = msgspec.structs.replace(machine, ceilings=highest(machine.ceilings, again))
    save_profile(profile)
    reason = peer.missing(shelf.config) if peers else ""
    if reason:
        desk.progress("bench", 1, total, detail=f"no peer: {reason}")
    rates: list[Rate] = []
    kernel_path: dict[str, str] = {}
    for precision in precisions:
        beside = None
        if peers and not reason:
            beside = peer.load_peer(shelf.config, shelf.tensors, precision)
        for one in fitting:
            desk.progress("bench", len(rates) + 1, total, detail=f"{one.phase} {precision}")
            build = _harness(shelf, one, precision, machine.threads, clock, desk)
            kernel_path |= {f"{key} {precision}": v for key, v in build.engine.kernel_path.items()}
            rates.append(_rate(shelf, build, one, profile.ceilings, beside))
    desk.progress("bench", total, total)
    return BenchDone(job, profile, tuple(rates), kernel_path)


def _harness(
    shelf: Shelf, one: Load, precision: str, threads: int, clock: Clock, desk: Reporter
) -> RunHarness:
    config = EngineConfig(
        WorkloadConfig(one.prompt, one.output),
        ScheduleConfig(one.batch, 0),
        RunConfig(precision, threads),
    )
    engine = Engine(shelf.llama(precision), config, eos_ids=shelf.tokenizer.eos_ids)
    return RunHarness(OnBench("candidate", config, engine, clock, desk))


def _rate(
    shelf: Shelf, build: RunHarness, one: Load, ceilings: Ceilings, beside: peer.PeerRun | None
) -> Rate:
    """Median of five runs; with a peer, of the runs in its ABBA pairs."""
    workload = Workload(shelf.tokenizer, 0, shelf.tokenizer.encode(corpus_text()))
    build.warm_up(workload.prompts)
    ratio: float | None = None
    if beside is not None and one.batch == 1:
        runs, ratio = _beside(build, one, workload, beside)
    else:
        runs = [build.run(workload.prompts(build.prompts_needed, one.prompt)) for _ in range(RUNS)]
    packed = "packed" in build.engine.kernel_path.get("head", "")
    work = price(build.config, shelf.config, packed_head=packed).work
    counted = work.prefill if one.phase == "prefill" else work.decode
    word, floor = binding(counted, work.precision, ceilings)
    seconds = median(phase_seconds(run, one.phase) for run in runs)
    tokens = one.batch * (one.prompt if one.phase == "prefill" else 1)
    return Rate(
        name=one.phase,
        precision=work.precision,
        batch=one.batch,
        tokens=one.prompt if one.phase == "prefill" else one.output,
        seconds=seconds,
        tokens_per_second=tokens / seconds,
        bound_by=word,
        share=floor / seconds,
        ratio_to_peer=ratio,
        peer=peer.NAME if ratio is not None else "",
    )


def _beside(
    build: RunHarness, one: Load, workload: Workload, beside: peer.PeerRun
) -> tuple[list[RunSample], float]:
    """Four pairs, engine and peer on the same prompt, in the order A B B A; the geometric mean of
    the engine's speed over the peer's."""
    (warm,) = workload.prompts(1, one.prompt)
    beside(warm, one.output)
    runs: list[RunSample] = []
    logs: list[float] = []
    for pair in range(PEER_PAIRS):
        prompts = workload.prompts(build.prompts_needed, one.prompt)
        if pair % 2 == 0:
            runs.append(build.run(prompts))
        theirs = beside(prompts[0], one.output)
        if pair % 2 == 1:
            runs.append(build.run(prompts))
        ours = phase_seconds(runs[-1], one.phase)
        logs.append(math.log(theirs[0 if one.phase == "prefill" else 1] / ours))
    return runs, math.exp(fmean(logs))
