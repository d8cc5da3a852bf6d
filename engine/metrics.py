"""What is measured: names, units, and the definitions that turn raw runs into figures.

Torch-free and pure. The definitions are the field's: TTFT is request start to first token; TPOT is
(end-to-end - TTFT) / (n - 1) for n >= 2 output tokens, so the first token belongs to prefill;
throughput counts the tokens that were really given over the time they took.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Literal

from engine.intervals import Samples
from engine.machine import Ceilings
from engine.trial import MemoryAccount, Pair, PhaseWork, Quality, RunSample, TrialResult, Work

Kind = Literal["ratio", "share", "absolute", "word"]
Phase = Literal["prefill", "decode"]
Resource = Literal["bandwidth", "compute", "launch overhead"]

PERCENTILES = ((99, 662), (95, 130), (90, 64))
"""A percentile and the fewest samples that say something of it (see `tail`)."""


FLOOR_SLACK = 1.05
"""A run above this share of its measured ceiling is not believed."""


class MetricError(ValueError):
    """A sample that cannot be true, or a metric that this trial does not have."""


@dataclass(frozen=True)
class Metric:
    """`ratio` is between two builds or phases, `share` of a whole or a ceiling (0 to 1),
    `absolute` in its unit, `word` a name. `better` says which way improvement lies."""

    name: str
    kind: Kind
    unit: str
    better: Literal["higher", "lower"]


def _registry(*metrics: Metric) -> Mapping[str, Metric]:
    return {metric.name: metric for metric in metrics}


METRICS: Mapping[str, Metric] = _registry(
    Metric("decode_throughput_ratio", "ratio", "x", "higher"),
    Metric("tpot_ratio", "ratio", "x", "lower"),
    Metric("ttft_ratio", "ratio", "x", "lower"),
    Metric("prefill_throughput_ratio", "ratio", "x", "higher"),
    Metric("memory_ratio", "ratio", "x", "lower"),
    Metric("decode_cost_ratio", "ratio", "x", "lower"),
    Metric("kl", "absolute", "nats/token", "lower"),
    Metric("top1", "share", "", "higher"),
    Metric("perplexity_ratio", "absolute", "x", "lower"),
    Metric("decode_ceiling_share", "share", "", "higher"),
    Metric("prefill_ceiling_share", "share", "", "higher"),
    Metric("tpot", "absolute", "s", "lower"),
    Metric("ttft", "absolute", "s", "lower"),
    Metric("decode_throughput", "absolute", "tokens/s", "higher"),
    Metric("prefill_throughput", "absolute", "tokens/s", "higher"),
    Metric("memory_bytes", "absolute", "bytes", "lower"),
    Metric("decode_time_share", "share", "", "lower"),
    Metric("prefill_time_share", "share", "", "lower"),
    Metric("other_time_share", "share", "", "lower"),
    Metric("bottleneck", "word", "", "lower"),
    Metric("live_tokens", "absolute", "tokens", "higher"),
    Metric("vessel_share", "share", "", "lower"),
    Metric("kv_request_mb", "absolute", "MB", "lower"),
    Metric("throughput_ratio", "ratio", "x", "higher"),
    Metric("throughput", "absolute", "tokens/s", "higher"),
    Metric("memory_use", "share", "", "higher"),
    Metric("reference_use", "absolute", "%", "higher"),
    Metric("prefix_hit_rate", "share", "", "higher"),
    Metric("queueing", "absolute", "s", "lower"),
    Metric("recomputed_share", "share", "", "lower"),
)


@dataclass(frozen=True)
class Evidence:
    """What a trial has seen so far: the runner fills it at each look, the judge at the end."""

    pairs: Sequence[Pair]
    singles: Sequence[RunSample]
    work: PhaseWork
    ceilings: Ceilings
    memory: MemoryAccount | None = None
    reference_memory: MemoryAccount | None = None
    quality: Quality | None = None

    @classmethod
    def of(cls, result: TrialResult) -> Evidence:
        return cls(
            pairs=result.pairs,
            singles=result.singles,
            work=result.candidate_work,
            ceilings=result.ceilings,
            memory=result.memory,
            reference_memory=result.reference_memory,
            quality=result.quality,
        )

    @property
    def candidate_runs(self) -> tuple[RunSample, ...]:
        return tuple(self.singles) or tuple(pair.candidate for pair in self.pairs)

    @property
    def reference_runs(self) -> tuple[RunSample, ...]:
        """In a trial of one build, that build is its own reference."""
        return tuple(pair.reference for pair in self.pairs) or tuple(self.singles)


def ttft(sample: RunSample) -> float:
    """Mean over the run's requests of start to first token, in seconds."""
    return fmean(sample.ttft)


def tpot(sample: RunSample) -> float:
    """Mean over requests of (end-to-end - TTFT) / (n - 1), in seconds a token.

    Every request of a run ends with its last step, so end-to-end is the run's wall time. A request
    that had its first token while others still prefilled pays for that wait here.

    Raises:
        MetricError: fewer than two output tokens: there is no gap to time.
    """
    if sample.output_tokens < 2:
        raise MetricError(f"TPOT needs at least 2 output tokens, not {sample.output_tokens}")
    return (sample.wall_seconds - ttft(sample)) / (sample.output_tokens - 1)


def inter_token_latencies(sample: RunSample, request: int) -> tuple[tuple[float, int], ...]:
    """The gaps a request's reader sees, each with the tokens that ended it (one a step here)."""
    before = sample.wall_seconds - sample.decode_seconds - sample.ttft[request]
    first, *rest = sample.step_seconds
    return ((first + before, 1), *((gap, 1) for gap in rest))


def decode_throughput(sample: RunSample) -> float:
    """Tokens/s of the decode phase: batch x (n - 1), since prefill gave each first token."""
    return sample.batch * (sample.output_tokens - 1) / sample.decode_seconds


def prefill_throughput(sample: RunSample) -> float:
    """Prompt tokens/s of the prefill phase."""
    return sample.batch * sample.prompt_tokens / sample.prefill_seconds


def decode_cost_ratio(sample: RunSample) -> float:
    """A decoded token's seconds over a prefilled one's: TPOT against prefill seconds a token."""
    return tpot(sample) * prefill_throughput(sample)


def time_share(sample: RunSample, phase: Literal["prefill", "decode", "other"]) -> float:
    """Share of the run's wall time that one phase took; the three sum to 1."""
    seconds = {
        "prefill": sample.prefill_seconds,
        "decode": sample.decode_seconds,
        "other": sample.other_seconds,
    }[phase]
    return seconds / sample.wall_seconds


def phase_seconds(sample: RunSample, phase: Phase) -> float:
    """Measured seconds of what `PhaseWork` counts: the whole prefill, or a mean decode step."""
    if phase == "prefill":
        return sample.prefill_seconds
    return fmean(sample.step_seconds)


def floor_seconds(work: Work, precision: str, ceilings: Ceilings) -> dict[Resource, float]:
    """What each resource alone would take: bytes / bandwidth, operations / rate, calls x cost.

    Raises:
        MetricError: the precision's matmul rate was never measured.
    """
    if precision not in ceilings.flops_per_second:
        known = ", ".join(sorted(ceilings.flops_per_second))
        raise MetricError(f"no measured matmul rate for {precision}; measured: {known}")
    return {
        "bandwidth": work.bytes_moved / ceilings.read_bytes_per_second,
        "compute": work.flops / ceilings.flops_per_second[precision],
        "launch overhead": work.dispatches * ceilings.dispatch_seconds,
    }


def binding(work: Work, precision: str, ceilings: Ceilings) -> tuple[Resource, float]:
    """The resource with the largest floor, and that floor in seconds: what binds this work."""
    floors = floor_seconds(work, precision, ceilings)
    word = max(floors, key=lambda name: floors[name])
    return word, floors[word]


def physical_floor(work: Work, precision: str, ceilings: Ceilings) -> float:
    """Seconds no honest run can beat: the bytes that must move, or the operations that must run.

    Operator calls are left out: a cheaper way to call is an improvement, not a fault.
    """
    floors = floor_seconds(work, precision, ceilings)
    return max(floors["bandwidth"], floors["compute"])


def ceiling_share(sample: RunSample, work: PhaseWork, ceilings: Ceilings, phase: Phase) -> float:
    """Physical floor over measured time: 1 is the machine's own ceiling."""
    counted = work.prefill if phase == "prefill" else work.decode
    return physical_floor(counted, work.precision, ceilings) / phase_seconds(sample, phase)


def faster_than_physics(
    sample: RunSample, work: PhaseWork, ceilings: Ceilings, slack: float = FLOOR_SLACK
) -> tuple[Phase, float] | None:
    """The phase of a run that beat its physical floor by more than `slack`, and by what factor."""
    phases: tuple[Phase, ...] = ("prefill", "decode")
    for phase in phases:
        share = ceiling_share(sample, work, ceilings, phase)
        if share > slack:
            return phase, share
    return None


def variation(values: Sequence[float]) -> float:
    """Coefficient of variation (standard deviation over mean); 0 for fewer than two values."""
    return stdev(values) / fmean(values) if len(values) > 1 else 0.0


def noise_variation(pairs: Sequence[Pair], singles: Sequence[RunSample]) -> float:
    """The larger build's variation of wall time over its runs: the noise a verdict stands on."""
    builds = (
        [run.wall_seconds for run in singles],
        [pair.reference.wall_seconds for pair in pairs],
        [pair.candidate.wall_seconds for pair in pairs],
    )
    return max(variation(walls) for walls in builds)


def tail(values: Sequence[float]) -> tuple[str, float]:
    """The highest percentile these samples can speak of, by nearest rank, with its name.

    p90 from 64 samples, p95 from 130, p99 from 662; below that it is the largest of n, and says so.

    Raises:
        MetricError: no samples.
    """
    if not values:
        raise MetricError("a tail needs at least one sample")
    ordered = sorted(values)
    for percent, enough in PERCENTILES:
        if len(ordered) >= enough:
            return f"p{percent}", ordered[math.ceil(len(ordered) * percent / 100) - 1]
    return f"max of {len(ordered)}", ordered[-1]


def check_sample(sample: RunSample, tolerance: float = 1e-6) -> None:
    """Refuses a run whose parts do not add up: nothing is judged on a sample that cannot be true.

    Raises:
        MetricError: naming the identity that broke. `tolerance` is seconds.
    """
    steps, wall = sample.step_seconds, sample.wall_seconds
    total = sample.prefill_seconds + sample.decode_seconds + sample.other_seconds
    durations = (sample.prefill_seconds, *steps, wall, *sample.ttft)
    checks = (
        (sample.batch >= 1 and sample.prompt_tokens >= 1, "a run has requests and prompts"),
        (sample.output_tokens >= 2, "a run gives each request at least 2 tokens"),
        (len(sample.ttft) == sample.batch, "one TTFT a request"),
        (len(steps) == sample.output_tokens - 1, "one decode step a token after the first"),
        (all(math.isfinite(value) and value > 0 for value in durations), "durations are positive"),
        (sample.other_seconds >= -tolerance, "no phase claims more than there was"),
        (abs(total - wall) <= tolerance, "wall = prefill + decode + other"),
        (
            max(sample.ttft, default=0.0)
            <= sample.prefill_seconds + sample.other_seconds + tolerance,
            "first tokens come before the decode phase",
        ),
        (
            max(steps, default=0.0) >= fmean(steps or (0.0,)) - tolerance,
            "the peak is at least the mean",
        ),
    )
    for holds, identity in checks:
        if not holds:
            raise MetricError(f"a run breaks an identity: {identity}")


_PAIRED: Mapping[str, Callable[[RunSample], float]] = {
    "decode_throughput_ratio": decode_throughput,
    "prefill_throughput_ratio": prefill_throughput,
    "tpot_ratio": tpot,
    "ttft_ratio": ttft,
}

_PER_RUN: Mapping[str, Callable[[RunSample], float]] = {
    "tpot": tpot,
    "ttft": ttft,
    "decode_throughput": decode_throughput,
    "prefill_throughput": prefill_throughput,
    "decode_time_share": lambda run: time_share(run, "decode"),
    "prefill_time_share": lambda run: time_share(run, "prefill"),
    "other_time_share": lambda run: time_share(run, "other"),
}


def samples(evidence: Evidence, names: Iterable[str] = METRICS) -> dict[str, Samples]:
    """The samples of each metric that this evidence holds; a metric it lacks is left out.

    Raises:
        MetricError: a name that is no metric.
    """
    found: dict[str, Samples] = {}
    for name in names:
        if name not in METRICS:
            raise MetricError(f"no metric is named {name!r}; there are: {', '.join(METRICS)}")
        values = _values(evidence, name)
        if values is not None and values.values:
            found[name] = values
    return found


def point_estimates(evidence: Evidence) -> dict[str, float]:
    """Every figure this evidence gives: geometric mean of ratios, median of levels."""
    return {name: _point(values) for name, values in samples(evidence).items()}


def _point(values: Samples) -> float:
    if values.statistic == "paired":
        return math.exp(fmean(math.log(ratio) for ratio in values.values))
    return median(values.values)


def _values(evidence: Evidence, name: str) -> Samples | None:
    runs = evidence.candidate_runs
    if name in _PAIRED:
        measure = _PAIRED[name]
        return Samples(
            "paired",
            tuple(measure(pair.candidate) / measure(pair.reference) for pair in evidence.pairs),
        )
    if name in _PER_RUN:
        return Samples("median", tuple(_PER_RUN[name](run) for run in runs))
    if name == "decode_cost_ratio":
        return Samples("median", tuple(decode_cost_ratio(run) for run in evidence.reference_runs))
    if name == "decode_ceiling_share":
        return _shares(evidence, runs, "decode")
    if name == "prefill_ceiling_share":
        return _shares(evidence, runs, "prefill")
    return _counted(evidence, name)


def _shares(evidence: Evidence, runs: Sequence[RunSample], phase: Phase) -> Samples:
    work, ceilings = evidence.work, evidence.ceilings
    return Samples("median", tuple(ceiling_share(run, work, ceilings, phase) for run in runs))


def _counted(evidence: Evidence, name: str) -> Samples | None:
    """Metrics that are counted rather than timed: memory and quality."""
    memory, reference, quality = evidence.memory, evidence.reference_memory, evidence.quality
    if name == "memory_bytes" and memory is not None:
        return Samples("exact", (float(memory.allocated_bytes),))
    if name == "memory_ratio" and memory is not None and reference is not None:
        return Samples("exact", (memory.allocated_bytes / reference.allocated_bytes,))
    if quality is not None and name in ("kl", "top1", "perplexity_ratio"):
        return Samples("exact", (float(getattr(quality, name)),))
    return None
