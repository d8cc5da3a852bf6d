"""Trials that never ran: results, verdicts and machines of known shape for tests of the game.

The numbers are those of a small two-core machine: reading 40 GB/s, multiplying 0.18 TFLOP/s in
float32 and 0.4 in bfloat16. Decode at batch 1 takes 27 ms a step in float32 and 17 ms at batch 8
in bfloat16; prefill takes 1.4 and 0.6 ms a token. Noise is drawn from the seed and centred, so
the mean log ratio of the pairs is exactly the one asked for.
"""

from __future__ import annotations

import math
import random
from typing import Any, Literal

import msgspec
from known_machines import SMOLLM2

from engine.capabilities import Capabilities
from engine.config import EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.domains import Value
from engine.machine import PROFILE_VERSION, Ceilings, MachineProfile
from engine.quality_report import Quality
from engine.trial import (
    Bound,
    Environment,
    Fault,
    MemoryAccount,
    Pair,
    PhaseWork,
    RunSample,
    TrialResult,
    TrialSpec,
    Work,
)
from game.rules.judge import judge
from game.rules.verdict import GoalOutcome, Remark, Verdict

Case = Literal["pass", "fail", "straddle", "noisy", "fault", "flooded", "fallen"]
"""pass: batch 8 in bfloat16. fail: the default build. straddle: batch 8 in float32, whose
throughput lies on its bound. noisy: every run interrupted, by up to several times its length.
fault: the runner itself gave up. In the gate the build is always the default one. flooded: the
memory budget broke, which only the abyss knows (see `canned_memory`). fallen: the model lost its
meaning, in the halls of weights in fewer bits (see `canned_weights`)."""

MODEL = SMOLLM2
CAPABILITIES = Capabilities(
    device="cpu",
    device_name="Canned CPU",
    physical_cores=2,
    logical_cores=2,
    memory_bytes=8 << 30,
    instruction_set="avx512",
    torch_version="2.13.0",
    python_version="3.11.9",
    platform="Linux-x86_64",
    precisions={"float32": "", "bfloat16": "", "float16": "no fast path on this CPU"},
    linear_forms=("plain", "packed"),
    low_bit_forms={
        precision: ("int8-row", "int4-group", "int8-dynamic", "packed")
        for precision in ("float32", "bfloat16")
    },
    weight_bits={"8": "", "4": "", "3": "", "2": ""},
)
CEILINGS = Ceilings(
    read_bytes_per_second=40e9,
    flops_per_second={"float32": 0.18e12, "bfloat16": 0.4e12},
    dispatch_seconds=3e-6,
)
MACHINE = MachineProfile(
    version=PROFILE_VERSION,
    fingerprint=CAPABILITIES.fingerprint,
    measured_at="2026-01-05T09:00:00+00:00",
    threads=2,
    wait_policy="active",
    ceilings=CEILINGS,
    noise=0.02,
)
PENDULUM_BOUNDS = (
    Bound("decode_throughput_ratio", ">=", 6.0),
    Bound("tpot_ratio", "<=", 1.6),
)

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_DECODE_MS = {
    ("float32", 1): 27.0,
    ("float32", 8): 36.0,
    ("bfloat16", 1): 15.5,
    ("bfloat16", 8): 17.0,
}
_PREFILL_MS = {"float32": 1.4, "bfloat16": 0.6, "float16": 0.6}
_REFERENCE: dict[str, Value] = {
    "schedule.batch": 1,
    "run.precision": "float32",
    "workload.prompt": 128,
    "workload.output": 24,
}


def make_build(case: Case = "pass") -> dict[str, Value]:
    """The pendulum build that leads to `case`."""
    if case == "pass" or case == "noisy":
        return {"schedule.batch": 8, "run.precision": "bfloat16"}
    if case == "straddle":
        return {"schedule.batch": 8, "run.precision": "float32"}
    return {"schedule.batch": 1, "run.precision": "float32"}


def make_config(build: dict[str, Value]) -> EngineConfig:
    return EngineConfig(
        workload=WorkloadConfig(
            prompt=int(build.get("workload.prompt", 128)),
            output=int(build.get("workload.output", 24)),
        ),
        schedule=ScheduleConfig(
            batch=int(build.get("schedule.batch", 1)),
            prefill_chunk=int(build.get("schedule.prefill_chunk", 0)),
        ),
        run=RunConfig(precision=str(build.get("run.precision", "float32")), threads=2),
    )


def make_sample(config: EngineConfig, slow: float = 1.0, digest: str = "0f" * 16) -> RunSample:
    """One run of `config`, every duration stretched by `slow`."""
    batch, precision = config.schedule.batch, config.run.precision
    base = _DECODE_MS.get((precision, batch), 15.0 + batch)
    step = base * 1e-3 * slow
    prefill = _PREFILL_MS[precision] * 1e-3 * config.workload.prompt * batch * slow
    steps = (step,) * (config.workload.output - 1)
    other = 1.5e-3 * slow
    ttft = (prefill,) * batch  # one pass over every prompt
    return RunSample(
        batch=batch,
        prompt_tokens=config.workload.prompt,
        output_tokens=config.workload.output,
        ttft=ttft,
        prefill_seconds=prefill,
        step_seconds=steps,
        other_seconds=other,
        wall_seconds=prefill + sum(steps) + other,
        output_digest=digest,
    )


def make_work(config: EngineConfig) -> PhaseWork:
    """Counted by hand: weights once a step, two operations a weight and token, the KV read."""
    width = _BYTES[config.run.precision]
    batch, prompt = config.schedule.batch, config.workload.prompt
    weights = MODEL.matrix_elements * width
    kv = MODEL.kv_elements_per_token * width * batch * (prompt + config.workload.output // 2)
    layer_flops = 2 * MODEL.layers * MODEL.layer_matrix_elements
    return PhaseWork(
        precision=config.run.precision,
        prefill=Work(float(weights * batch), float(layer_flops * prompt * batch), 600.0 * batch),
        decode=Work(float(weights + kv), float(2 * MODEL.matrix_elements * batch), 600.0),
    )


def make_memory(config: EngineConfig) -> MemoryAccount:
    width = _BYTES[config.run.precision]
    tokens = config.schedule.batch * (config.workload.prompt + config.workload.output)
    parts = {
        "weights": MODEL.matrix_elements * width,
        "kv": MODEL.kv_elements_per_token * width * tokens,
        "activations": 6 << 20,
        "scratch": 4 << 20,
    }
    allocated = parts | {"activations": parts["activations"] + (1 << 18)}
    return MemoryAccount(predicted=parts, allocated=allocated, resident_bytes=1_400_000_000)


def spreads(count: int, sigma: float, seed: int) -> list[float]:
    """`count` factors whose logarithms have mean exactly 0 and deviation near `sigma`."""
    random_source = random.Random(seed)
    logs = [random_source.gauss(0.0, sigma) for _ in range(count)]
    mean = math.fsum(logs) / count
    return [math.exp(value - mean) for value in logs]


def _interruptions(count: int, sigma: float, seed: int) -> list[float]:
    """Factors of runs that something else broke into: never below 1, spread by some 40 %."""
    random_source = random.Random(seed)
    return [1.0 + sigma + random_source.expovariate(1.5) for _ in range(count)]


def make_result(
    stage: str = "pendulum",
    case: Case = "pass",
    build: dict[str, Value] | None = None,
    seed: int = 7,
) -> TrialResult:
    """A whole result: `gate` gives a timeline, `abyss` and `paging` what `canned_memory` makes of
    them, anything else ABBA pairs against the reference."""
    if stage in ("abyss", "paging"):
        import canned_memory
        import canned_serving

        make = canned_memory.make_hold if stage == "abyss" else canned_serving.make_serve
        return at_fault(make(case, build, seed), case)
    if stage in ("furnace", "precision"):
        import canned_weights

        return at_fault(canned_weights.make_pressed(stage, case, build, seed), case)
    timeline = stage == "gate"
    if build is None:
        build = {} if timeline else make_build(case)
    build = _REFERENCE | build
    candidate, reference = make_config(build), make_config(_REFERENCE)
    count = 8 if case in ("pass", "fail") else 32
    spread = _interruptions if case == "noisy" else spreads
    sigma = 0.05 if case == "straddle" else 0.01
    left, right = spread(count, sigma, seed), spread(count, sigma, seed + 1)
    pairs = tuple(
        Pair(
            order="AB" if index % 2 == 0 else "BA",
            reference=make_sample(reference, left[index]),
            candidate=make_sample(candidate, right[index], digest="1e" * 16),
        )
        for index in range(0 if timeline or case == "fault" else count)
    )
    singles = tuple(make_sample(candidate, factor) for factor in left) if timeline else ()
    low = candidate.run.precision != "float32"
    return TrialResult(
        spec=TrialSpec(
            stage=stage,
            kind="timeline" if timeline else "paired",
            build=build,
            reference=_REFERENCE,
            seed=seed,
            bounds=() if timeline else PENDULUM_BOUNDS,
        ),
        config=candidate,
        reference_config=reference,
        reasons={"run.threads": "2: fastest when this machine was calibrated"},
        pairs=pairs,
        singles=() if case == "fault" else singles,
        warmup_runs=4,
        load_seconds=1.8,
        candidate_work=make_work(candidate),
        reference_work=make_work(reference),
        memory=make_memory(candidate),
        reference_memory=make_memory(reference),
        quality=Quality(
            kl=0.0016 if low else 0.0,
            top1=0.984 if low else 1.0,
            perplexity_ratio=1.001 if low else 1.0,
            scored_tokens=2048,
            text_digest="ab" * 32,
        ),
        kernel_path={"linear": "dense", "attention": "naive"},
        reference_kernel_path={"linear": "dense", "attention": "naive"},
        prefix_hit_rate=0.0,
        ceilings=CEILINGS,
        noise=MACHINE.noise,
        faults=(Fault("unstable", {"runs": "10"}),) if case == "fault" else (),
        environment=Environment(
            fingerprint=CAPABILITIES.fingerprint,
            platform=CAPABILITIES.platform,
            python_version=CAPABILITIES.python_version,
            torch_version=CAPABILITIES.torch_version,
            threads=2,
            wait_policy="active",
            clock_verified=False,
            model_digest="cd" * 32,
            model_name="SmolLM2-135M-Instruct",
            started_at="2026-01-05T09:05:00+00:00",
        ),
        sample_text="The capital of France is Paris.",
    )


def at_fault(result: TrialResult, case: Case) -> TrialResult:
    """`result` as a runner that gave up leaves it; other cases stay as they are."""
    if case != "fault":
        return result
    fault = Fault("unstable", {"runs": "10", "cv": "40"})
    if result.spec.kind == "hold":  # what it counts, no noise can void
        fault = Fault("wrong_output", {"what": "its tokens are not the model's"})
    return msgspec.structs.replace(
        result, singles=(), load_pairs=(), flood=None, quality=None, faults=(fault,)
    )


_WORDS: dict[Case, Literal["pass", "fail", "inconclusive", "invalid"]] = {
    "pass": "pass",
    "fail": "fail",
    "straddle": "inconclusive",
    "noisy": "invalid",
    "fault": "invalid",
    "flooded": "fail",
    "fallen": "fail",
}


def make_verdict(
    stage: str = "pendulum", case: Case = "pass", crowns: tuple[str, ...] = ("time",)
) -> Verdict:
    """The verdict of `make_result(stage, case)`, written by hand and not by the judge."""
    if stage in ("abyss", "paging"):
        import canned_memory_verdicts as written

        write = written.abyss_verdict if stage == "abyss" else written.paging_verdict
        return write(case, crowns)
    if stage in ("furnace", "precision"):
        return _judged(stage, case, crowns)
    word = _WORDS[case]
    if stage == "gate":
        word = "pass" if word in ("pass", "fail") else word
    throughput = {"pass": 12.7, "noisy": 12.7, "straddle": 6.0}.get(case, 1.0)
    tpot = {"pass": 0.63, "noisy": 0.63, "straddle": 1.33}.get(case, 1.0)
    width = {"noisy": 0.2, "straddle": 0.03}.get(case, 0.008)
    holds = {"pass": True, "fail": False}.get(case)
    goals = (
        GoalOutcome(
            "decode_throughput_ratio",
            ">=",
            6.0,
            throughput,
            (throughput * (1 - width), throughput * (1 + width)),
            holds,
        ),
        GoalOutcome("tpot_ratio", "<=", 1.6, tpot, (tpot * (1 - width), tpot * (1 + width)), True),
    )
    reasons = {
        "fail": (Remark("goal_broken", {"metric": "decode_throughput_ratio"}),),
        "straddle": (Remark("straddles", {"metric": "decode_throughput_ratio"}),),
        "noisy": (Remark("noise", {"cv": "40"}),),
        "fault": (Remark("unstable", {"runs": "10"}),),
    }.get(case, ())
    empty = case == "fault"
    batched = stage != "gate" and case in ("pass", "noisy")
    metrics: dict[str, float] = {
        "decode_cost_ratio": 19.3,
        "tpot": 0.017 if batched else 0.027,
        "decode_throughput": 470.0 if batched else 37.0,
        "prefill_throughput": 1667.0 if batched else 714.0,
        "ttft": 0.61 if batched else 0.18,
        "memory_bytes": float(make_memory(make_config(make_build(case))).allocated_bytes),
        "memory_ratio": 0.52 if batched else 1.0,
        "kl": 0.0016 if batched else 0.0,
        "top1": 0.984 if batched else 1.0,
        "decode_ceiling_share": 0.44 if batched else 0.50,
        "prefill_ceiling_share": 0.88 if batched else 0.84,
        "decode_time_share": 0.39 if batched else 0.77,
        "prefill_time_share": 0.60 if batched else 0.22,
        "other_time_share": 0.01,
    }
    if stage != "gate":
        metrics |= {"decode_throughput_ratio": throughput, "tpot_ratio": tpot}
    return Verdict(
        word=word,
        goals=() if stage == "gate" or empty else goals,
        metrics={} if empty else metrics,
        bound_by="none" if empty else ("compute" if batched else "bandwidth"),
        bound_share=0.0
        if empty
        else metrics["prefill_ceiling_share" if batched else "decode_ceiling_share"],
        phase_bounds={} if empty else {"prefill": "compute", "decode": "bandwidth"},
        reasons=reasons,
        advice=(Remark("close_noisy_programs"),) if word in ("inconclusive", "invalid") else (),
        crowns=crowns if word == "pass" else (),
        pairs_used=0 if stage == "gate" or empty else (8 if case in ("pass", "fail") else 32),
        noise_cv={"noisy": 0.4, "straddle": 0.05}.get(case, 0.01),
    )


def _judged(stage: str, case: Case, crowns: tuple[str, ...]) -> Verdict:
    """The judge's own: of these halls nothing is written by hand."""
    result = make_result(stage, case)
    verdict = judge(result, result.spec.bounds)
    return msgspec.structs.replace(verdict, crowns=crowns if verdict.word == "pass" else ())


def plain(value: msgspec.Struct) -> dict[str, Any]:
    """A value as the plain JSON a Record carries."""
    built: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return built
