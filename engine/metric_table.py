"""What can be measured: the names of metrics, their kinds and units, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["ratio", "share", "absolute", "word"]


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
    Metric("weight_share", "share", "", "lower"),
    Metric("average_bits", "absolute", "bits/weight", "lower"),
    Metric("probes_right", "share", "", "higher"),
    Metric("four_bit_gain", "ratio", "x", "higher"),
    Metric("breaking_bits", "word", "", "lower"),
    Metric("acceptance_rate", "share", "", "higher"),
    Metric("acceptance_length", "absolute", "tokens/step", "higher"),
    Metric("draft_time_share", "share", "", "lower"),
    Metric("break_even_length", "absolute", "tokens/step", "lower"),
    Metric("break_even_acceptance", "share", "", "lower"),
    Metric("lossless", "share", "", "higher"),
)
