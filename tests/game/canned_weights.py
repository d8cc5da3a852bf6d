"""Canned trials of weights in fewer bits: the furnace, and the wall where a model falls.

Bytes and work are the formula's. KL is what was measured of the default model on 2,048 tokens, in
nats a token; a step takes half as long at 4 bits in groups of 32 or 64, and hardly less at widths
that are unpacked for every product.
"""

from __future__ import annotations

import msgspec
from canned_memory import config_of
from canned_trials import CAPABILITIES, MODEL, Case, make_result, make_sample, spreads

from engine.config import EngineConfig
from engine.domains import Value
from engine.fit import weight_elements
from engine.price import price_on
from engine.quality_report import Answer, Probes, Quality, Rung
from engine.quantised import Histogram, LayerError, Notice, Quantised
from engine.recipe import average_bits, recipe_of
from engine.trial import Bound, MemoryAccount, Pair, RunSample, TrialResult, TrialSpec

RTN = {(8, -1): 0.005, (4, 32): 0.230, (4, 64): 0.36, (3, 32): 1.63, (2, 32): 11.4}
AWQ = {(4, 32): 0.090, (4, 64): 0.117, (4, 192): 0.178, (3, 32): 0.37, (3, 64): 0.50,
       (2, 32): 2.07}  # fmt: skip
GPTQ = {(4, 32): 0.095, (4, 64): 0.12, (3, 32): 0.37, (2, 32): 1.5}
KL = {"rtn": RTN, "awq": AWQ, "gptq": GPTQ, "qat": AWQ, "smoothquant": {(8, -1): 0.011}}
"""Method -> (bits, group) -> KL."""
FULL_KL = 0.0006
GROUPS = {8: -1, 4: 64, 3: 32, 2: 32}
"""What `weights.group` 0 comes to."""
LADDER = tuple(Rung(bits, kl, top1) for bits, kl, top1 in
               ((8, 0.005, 0.97), (4, 0.23, 0.79), (3, 1.63, 0.43), (2, 11.4, 0.02)))  # fmt: skip
BABBLE = "France France the the of of of capital"

FURNACE: dict[str, Value] = {
    "workload.prompt": 1024, "workload.output": 24, "schedule.batch": 1,
    "run.precision": "bfloat16", "weights.bits": 0,
}  # fmt: skip
PRECISION = FURNACE | {"workload.prompt": 64, "workload.output": 16}
FURNACE_GOALS = (
    Bound("weight_share", "<=", 0.4),
    Bound("tpot_ratio", "<=", 0.6),
    Bound("ttft_ratio", "<=", 1.3),
    Bound("kl", "<=", 0.15),
)
PRECISION_GOALS = (
    Bound("average_bits", "<=", 5.0),
    Bound("kl", "<=", 0.25),
    Bound("probes_right", ">=", 0.7),
)
BUILDS: dict[str, dict[Case, dict[str, Value]]] = {
    "furnace": {
        "pass": {"weights.bits": 4, "weights.method": "awq", "weights.group": 32},
        "fallen": {"weights.bits": 3},
    },
    "precision": {
        "pass": {"weights.bits": 4, "weights.method": "awq", "weights.group": 64,
                 "weights.embedding": 4},
        "fallen": {"weights.bits": 3},
    },
}  # fmt: skip


def make_pressed(
    stage: str = "furnace",
    case: Case = "pass",
    build: dict[str, Value] | None = None,
    seed: int = 7,
) -> TrialResult:
    """A trial of the furnace or of the wall; a build that is given decides its own case."""
    base, goals = (PRECISION, PRECISION_GOALS) if stage == "precision" else (FURNACE, FURNACE_GOALS)
    whole = base | (BUILDS[stage].get(case, {}) if build is None else build)
    config, reference = config_of(whole), config_of(base)
    left, right = spreads(8, 0.01, seed), spreads(8, 0.01, seed + 1)
    return msgspec.structs.replace(
        make_result("pendulum"),
        spec=TrialSpec(
            stage, "paired", whole, base, seed, bounds=goals, probes=True,
            ladder=(8, 4, 3, 2) if stage == "precision" else (),
        ),
        config=config,
        reference_config=reference,
        pairs=tuple(
            Pair("BA" if number % 2 else "AB", make_sample(reference, one), _run(config, other))
            for number, (one, other) in enumerate(zip(left, right, strict=True))
        ),
        candidate_work=price_on(config, MODEL, CAPABILITIES).work,
        reference_work=price_on(reference, MODEL, CAPABILITIES).work,
        memory=_account(config),
        reference_memory=_account(reference),
        quality=_quality(config),
        kernel_path={"linear": _form(config), "head": "int8-row bfloat16"},
        quantised=_quantised(config),
        ladder=LADDER if stage == "precision" else (),
    )  # fmt: skip


def group_of(config: EngineConfig) -> int:
    return config.weights.group or GROUPS.get(config.weights.bits, 0)


def kl_of(config: EngineConfig) -> float:
    weights = config.weights
    if not weights.bits:
        return FULL_KL
    return KL[weights.method].get((weights.bits, group_of(config)), 0.5)


def _run(config: EngineConfig, slow: float) -> RunSample:
    run = make_sample(config, slow)
    tpot = {0: 1.0, 8: 0.75, 4: 0.5}.get(config.weights.bits, 0.95)
    ttft = 1.0 if not config.weights.bits else 1.14 if config.weights.crossover else 3.0
    steps = tuple(step * tpot for step in run.step_seconds)
    prefill = run.prefill_seconds * ttft
    return msgspec.structs.replace(
        run,
        step_seconds=steps,
        prefill_seconds=prefill,
        ttft=(prefill,),
        wall_seconds=prefill + sum(steps) + run.other_seconds,
    )


def _form(config: EngineConfig) -> str:
    bits, group = config.weights.bits, group_of(config)
    if not bits:
        return "onednn-packed bfloat16"
    if bits == 4 and group in (32, 64):
        return "int4-group bfloat16, dense above 32 rows"
    return "int8-row bfloat16" if bits == 8 else f"packed-{bits}bit plain bfloat16"


def _account(config: EngineConfig) -> MemoryAccount:
    parts = price_on(config, MODEL, CAPABILITIES).parts
    return MemoryAccount(parts, parts, 1_400_000_000, weight_elements=weight_elements(MODEL))


def _quality(config: EngineConfig) -> Quality:
    kl = kl_of(config)
    fallen = kl >= 1
    answers = (
        Answer("What is the capital of France?", "Paris.", BABBLE if fallen else "Paris.",
               0 if fallen else None),
        Answer("Why is the sky blue?", "Because air scatters blue light.",
               BABBLE if fallen else "Because the air scatters light.", 0 if fallen else 1),
    )  # fmt: skip
    return Quality(
        kl=kl,
        top1=0.43 if fallen else 0.85,
        perplexity_ratio=1 + kl,
        scored_tokens=2048,
        text_digest="ab" * 32,
        kl_by_position=(1.2 * kl, kl, 0.8 * kl),
        position_tokens=64,
        probes=Probes(asked=40, known=30, right=3 if fallen else 27),
        answers=answers,
    )


def _quantised(config: EngineConfig) -> Quantised | None:
    weights = config.weights
    if not recipe_of(weights, MODEL).quantises:
        return None
    errors = [LayerError(layer, name, 0.05) for layer in range(2) for name in ("qkv", "down")]
    read = 0 if weights.method == "rtn" else weights.calibration
    return Quantised(
        method=weights.method,
        bits=weights.bits,
        average_bits=average_bits(config, MODEL, CAPABILITIES.low_bit_forms["bfloat16"]),
        seconds=0.0 if weights.method == "rtn" else 21.5,
        cached=weights.method == "rtn",
        calibration_tokens=read,
        changed_layers=0 if weights.method == "rtn" else 30,
        layers=30,
        errors=(LayerError(-1, "embedding", 0.4), *errors, LayerError(29, "down", 0.17)),
        histogram=Histogram(0, "down", -0.5, 0.5, (1, 6, 1), (0, 8, 0)),
        notices=(Notice("calibration_short", {"tokens": str(read), "width": "1536"}),)
        if 0 < read < 1536
        else (),
    )
