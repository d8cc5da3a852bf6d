"""What was measured: what a trial's evidence says of each metric.

Torch-free and pure. Their names are in `engine.metric_table`, the definitions of single figures in
`engine.run_metrics` (one run), `engine.load_metrics` (a served load), `engine.draft_metrics` (a run
beside one without a draft) and `engine.roofline` (the machine's ceilings); here they become the
samples that a goal is decided on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from engine import draft_metrics
from engine.counted_metrics import cache_figures, memory_figures, quality_figures
from engine.draft_report import DraftReport
from engine.intervals import Samples
from engine.load_metrics import (
    load_ceiling_share,
    load_tpot,
    load_ttft,
    memory_use,
    prefix_hit_rate,
    queueing,
    recomputed_share,
    throughput,
    wall_a_token,
)
from engine.machine import Ceilings
from engine.metric_table import METRICS, Metric
from engine.quality_report import Quality, Rung
from engine.quantised import Quantised
from engine.roofline import (
    FLOOR_SLACK,
    MetricError,
    Phase,
    Resource,
    binding,
    floor_seconds,
    physical_floor,
)
from engine.run_metrics import (
    ceiling_share,
    check_sample,
    decode_cost_ratio,
    decode_throughput,
    faster_than_physics,
    inter_token_latencies,
    phase_seconds,
    prefill_throughput,
    steady_seconds,
    time_share,
    tpot,
    ttft,
)
from engine.spread import PERCENTILES, tail, variation
from engine.trial import (
    Flood,
    Ledger,
    LoadPair,
    LoadSample,
    MemoryAccount,
    Pair,
    PhaseWork,
    RunSample,
    TrialResult,
)

__all__ = [
    "FLOOR_SLACK",
    "METRICS",
    "PERCENTILES",
    "Evidence",
    "Metric",
    "MetricError",
    "Phase",
    "Resource",
    "binding",
    "ceiling_share",
    "check_sample",
    "decode_cost_ratio",
    "decode_throughput",
    "faster_than_physics",
    "floor_seconds",
    "inter_token_latencies",
    "noise_variation",
    "phase_seconds",
    "physical_floor",
    "point_estimates",
    "prefill_throughput",
    "samples",
    "tail",
    "time_share",
    "tpot",
    "ttft",
    "variation",
]


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
    load_pairs: Sequence[LoadPair] = ()
    ledger: Ledger | None = None
    flood: Flood | None = None
    quantised: Quantised | None = None
    ladder: Sequence[Rung] = ()
    draft: DraftReport | None = None

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
            load_pairs=result.load_pairs,
            ledger=result.ledger,
            flood=result.flood,
            quantised=result.quantised,
            ladder=result.ladder,
            draft=result.draft,
        )

    @property
    def candidate_runs(self) -> tuple[RunSample, ...]:
        return tuple(self.singles) or tuple(pair.candidate for pair in self.pairs)

    @property
    def reference_runs(self) -> tuple[RunSample, ...]:
        """In a trial of one build, that build is its own reference."""
        return tuple(pair.reference for pair in self.pairs) or tuple(self.singles)

    @property
    def candidate_loads(self) -> tuple[LoadSample, ...]:
        return tuple(pair.candidate for pair in self.load_pairs)

    @property
    def reference_loads(self) -> tuple[LoadSample, ...]:
        return tuple(pair.reference for pair in self.load_pairs)

    @property
    def live_tokens(self) -> int | None:
        """The most tokens that lay in the cache at once; where the budget broke, what lay there
        then. None where nobody counted."""
        if self.flood is not None:
            return self.flood.ledger.live_tokens
        runs = max((run.peak_live_tokens for run in self.candidate_runs), default=0)
        loads = max((load.peak_live_tokens for load in self.candidate_loads), default=0)
        return max(runs, loads) or None


def noise_variation(
    pairs: Sequence[Pair], singles: Sequence[RunSample], load_pairs: Sequence[LoadPair] = ()
) -> float:
    """The larger build's variation of wall time over its runs: the noise a verdict stands on.

    Loads are drawn anew for every pair and differ in length: theirs is of wall time a token. How
    many steps a draft saves is the text's doing, and no noise: see `steady_seconds`.
    """
    builds = (
        [steady_seconds(run) for run in singles],
        [steady_seconds(pair.reference) for pair in pairs],
        [steady_seconds(pair.candidate) for pair in pairs],
        [wall_a_token(pair.reference) for pair in load_pairs],
        [wall_a_token(pair.candidate) for pair in load_pairs],
    )
    return max(variation(walls) for walls in builds)


_PAIRED: Mapping[str, Callable[[RunSample], float]] = {
    "decode_throughput_ratio": decode_throughput,
    "prefill_throughput_ratio": prefill_throughput,
    "tpot_ratio": tpot,
    "ttft_ratio": ttft,
}

_LOAD_PAIRED: Mapping[str, Callable[[LoadSample], float]] = {
    "throughput_ratio": throughput,
    "tpot_ratio": load_tpot,
    "ttft_ratio": load_ttft,
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

_PER_LOAD: Mapping[str, Callable[[LoadSample], float]] = {
    "tpot": load_tpot,
    "ttft": load_ttft,
    "throughput": throughput,
    "memory_use": memory_use,
    "prefix_hit_rate": prefix_hit_rate,
    "queueing": queueing,
    "recomputed_share": recomputed_share,
    "decode_time_share": lambda load: time_share(load, "decode"),
    "prefill_time_share": lambda load: time_share(load, "prefill"),
    "other_time_share": lambda load: time_share(load, "other"),
}

_CEILING: Mapping[str, Phase] = {
    "decode_ceiling_share": "decode",
    "prefill_ceiling_share": "prefill",
}


def samples(evidence: Evidence, names: Iterable[str] = METRICS) -> dict[str, Samples]:
    """The samples of each metric that this evidence holds; a metric it lacks is left out, and so
    are words.

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
    """A served trial's figures are of its loads, any other's of its runs."""
    if name == "four_bit_gain":
        return _four_bit_gain(evidence)
    if evidence.load_pairs:
        return _of_loads(evidence, name) or _counted(evidence, name)
    return _of_runs(evidence, name) or _counted(evidence, name)


def _of_runs(evidence: Evidence, name: str) -> Samples | None:
    runs = evidence.candidate_runs
    if name in _PAIRED:
        measure = _PAIRED[name]
        return Samples(
            "paired",
            tuple(measure(pair.candidate) / measure(pair.reference) for pair in evidence.pairs),
        )
    if name in _PER_RUN:
        return Samples("median", tuple(_PER_RUN[name](run) for run in runs))
    if name in draft_metrics.OF_A_RUN:
        drafting = [run for run in runs if run.draft is not None]
        return Samples("median", tuple(draft_metrics.OF_A_RUN[name](run) for run in drafting))
    if name in _OF_DRAFTS:
        drafted = (_OF_DRAFTS[name](pair) for pair in evidence.pairs if _drafts(pair))
        return Samples("median", tuple(value for value in drafted if value is not None))
    if name == "decode_cost_ratio":
        return Samples("median", tuple(decode_cost_ratio(run) for run in evidence.reference_runs))
    if name in _CEILING:
        work, ceilings = evidence.work, evidence.ceilings
        shares = (ceiling_share(run, work, ceilings, _CEILING[name]) for run in runs)
        return Samples("median", tuple(shares))
    return None


_OF_DRAFTS: Mapping[str, Callable[[Pair], float | None]] = {
    "break_even_length": draft_metrics.break_even_length,
    "break_even_acceptance": draft_metrics.break_even_acceptance,
}


def _drafts(pair: Pair) -> bool:
    """Whether the candidate drafts and the reference does not."""
    return pair.candidate.draft is not None and pair.reference.draft is None


def _of_loads(evidence: Evidence, name: str) -> Samples | None:
    loads = evidence.candidate_loads
    if name in _LOAD_PAIRED:
        measure = _LOAD_PAIRED[name]
        pairs = evidence.load_pairs
        return Samples(
            "paired", tuple(measure(pair.candidate) / measure(pair.reference) for pair in pairs)
        )
    if name in _PER_LOAD:
        return Samples("median", tuple(_PER_LOAD[name](load) for load in loads))
    if name == "reference_use":
        return Samples("median", tuple(100 * memory_use(one) for one in evidence.reference_loads))
    if name in _CEILING:
        counted = (load for load in loads if load.work is not None)
        shares = (load_ceiling_share(one, evidence.ceilings, _CEILING[name]) for one in counted)
        return Samples("median", tuple(shares))
    return None


def _four_bit_gain(evidence: Evidence) -> Samples | None:
    """How many times shorter the reference's TPOT is made by a build of four bits."""
    if evidence.quantised is None or evidence.quantised.bits != _GAIN_BITS:
        return None
    slower = _values(evidence, "tpot_ratio")
    if slower is None:
        return None
    return Samples("paired", tuple(1 / ratio for ratio in slower.values))


_GAIN_BITS = 4


def _counted(evidence: Evidence, name: str) -> Samples | None:
    """Metrics that are counted rather than timed: memory and quality."""
    figures = memory_figures(evidence.memory, evidence.reference_memory)
    figures |= cache_figures(evidence.ledger, evidence.reference_memory, evidence.live_tokens)
    if evidence.quality is not None:
        figures |= quality_figures(evidence.quality)
    if evidence.draft is not None:
        figures |= draft_metrics.report_figures(evidence.draft)
    value = figures.get(name)
    return None if value is None else Samples("exact", (value,))
