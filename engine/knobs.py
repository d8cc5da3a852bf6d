"""The tunable settings: names, domains, and what a change costs.

A knob's dotted name is the path of the field it sets in `EngineConfig`. On the command line a
unique ending is enough (`batch=8`); an ambiguous or unknown name is refused with candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from engine.capabilities import Capabilities
from engine.domains import Domain, IntDomain, KnobError, RealDomain, Value, WordDomain, nearest_name
from engine.model.config import ModelConfig

Cost = Literal["live", "recapture", "reload"]


@dataclass(frozen=True)
class Knob:
    """One tunable setting. `unit` is a plain word for the interface ("tokens", "requests")."""

    name: str
    domain: Domain
    default: Value
    unit: str
    cost: Cost

    def unavailable(
        self, value: Value, capabilities: Capabilities | None, model: ModelConfig | None
    ) -> str | None:
        """Why this machine or model alone cannot take `value`; None where it can.

        The forge bars such stops. A block size is judged as if the cache were paged.
        """
        if capabilities is not None:
            if self.name == "run.precision":
                return capabilities.precisions.get(str(value)) or None
            if self.name in _WIDTHS and capabilities.weight_bits.get(str(value)):
                return capabilities.weight_bits[str(value)]
            if self.name == "run.threads" and int(value) > capabilities.logical_cores:
                return f"this machine has {capabilities.logical_cores} logical cores"
        return None if model is None else self._unfit(value, model)

    def _unfit(self, value: Value, model: ModelConfig) -> str | None:
        """Why the model's shape rules `value` out."""
        if self.name == "workload.prompt" and int(value) >= model.context:
            return f"the model's context is {model.context} tokens"
        if self.name == "cache.block_size" and model.context % int(value):
            divisors = [size for size in range(1, 257) if model.context % size == 0]
            nearest = min(divisors, key=lambda size: abs(size - int(value)))
            return (
                f"blocks must divide the model's context of {model.context} tokens; "
                f"nearest: {nearest}"
            )
        if self.name == "cache.bits" and value == 4 and model.head_dim % 2:
            return (
                f"4-bit codes go two to a byte, and a head of {model.head_dim} numbers is odd; "
                "nearest: 8"
            )
        return None


_WIDTHS = frozenset(
    f"weights.{name}" for name in ("bits", "attention", "mlp", "embedding", "edges")
)
"""Knobs whose value is a width that weights are quantised to."""


def _of_a_kind(follow: str) -> IntDomain:
    """Bits of one kind of matrix: `follow` says what 0 does."""
    return IntDomain(2, 16, (0, 16, 8, 4, 3, 2), {0: follow, 16: "full"}, only_ladder=True)


# Ladders are short enough to stand in one row of the forge at 80 columns; what lies between their
# stops can be typed. What no single knob can rule out (lengths that must fit together, memory) is
# refused by `engine.legality`.
_ALL = (
    Knob(
        "workload.prompt",
        IntDomain(1, 32_768, (64, 128, 256, 512, 1024, 2048)),
        128,
        "tokens",
        "live",
    ),
    Knob("workload.output", IntDomain(2, 4_096, (8, 16, 24, 32, 64, 128)), 24, "tokens", "live"),
    Knob("workload.mix", WordDomain(("uniform", "mixed")), "uniform", "", "live"),
    Knob(
        "workload.requests",
        IntDomain(1, 256, (0, 4, 8, 12, 16, 24, 32), {0: "batch"}),
        0,
        "requests",
        "live",
    ),
    Knob("workload.system", IntDomain(0, 8_192, (0, 32, 64, 128, 256)), 0, "tokens", "live"),
    Knob(
        "schedule.batch",
        IntDomain(1, 64, (1, 2, 4, 8, 12, 16, 32, 64)),
        1,
        "requests",
        "live",
    ),
    Knob(
        "schedule.prefill_chunk",
        IntDomain(16, 32_768, (0, 32, 64, 128, 256, 512), {0: "whole"}),
        0,
        "tokens",
        "live",
    ),
    Knob(
        "run.precision",
        WordDomain(("float32", "bfloat16", "float16")),
        "float32",
        "",
        "reload",
    ),
    Knob(
        "run.threads", IntDomain(1, 1_024, (0, 1, 2, 4, 8, 16), {0: "auto"}), 0, "threads", "live"
    ),
    Knob("cache.layout", WordDomain(("contiguous", "paged")), "contiguous", "", "live"),
    Knob(
        "cache.block_size",
        IntDomain(1, 256, (1, 2, 4, 8, 16, 32, 64, 128, 256)),
        16,
        "tokens",
        "live",
    ),
    Knob(
        "cache.bits",
        IntDomain(4, 16, (0, 16, 8, 4), {0: "full"}, only_ladder=True),
        0,
        "bits",
        "live",
    ),
    Knob("cache.prefix_sharing", WordDomain(("off", "on")), "off", "", "live"),
    Knob(
        "weights.bits",
        IntDomain(2, 8, (0, 8, 4, 3, 2), {0: "full"}, only_ladder=True),
        0,
        "bits",
        "reload",
    ),
    Knob(
        "weights.group",
        IntDomain(16, 4_096, (0, 32, 64, 96, 192, -1), {0: "auto", -1: "row"}),
        0,
        "weights",
        "reload",
    ),
    Knob("weights.symmetric", WordDomain(("off", "on")), "off", "", "reload"),
    Knob(
        "weights.method",
        WordDomain(("rtn", "gptq", "awq", "smoothquant", "qat")),
        "rtn",
        "",
        "reload",
    ),
    Knob(
        "weights.calibration",
        IntDomain(64, 65_536, (512, 2_048, 4_096, 12_288)),
        4_096,
        "tokens",
        "reload",
    ),
    Knob(
        "weights.crossover",
        IntDomain(1, 32_768, (0, 4, 8, 16, 32, 64, 128, 1_024), {0: "never"}),
        32,
        "rows",
        "live",
    ),
    Knob("weights.attention", _of_a_kind("same"), 0, "bits", "reload"),
    Knob("weights.mlp", _of_a_kind("same"), 0, "bits", "reload"),
    Knob("weights.embedding", _of_a_kind("auto"), 0, "bits", "reload"),
    Knob("weights.edges", _of_a_kind("same"), 0, "bits", "reload"),
    Knob("weights.edge_layers", IntDomain(1, 64, (1, 2, 4, 8)), 1, "layers", "reload"),
    Knob(
        "memory.budget",
        IntDomain(1, 100_000, (0, 60, 70, 80, 90, 100, 150, 200, 400), {0: "none"}),
        0,
        "percent of the float32 weights",
        "live",
    ),
    Knob("memory.overflow", WordDomain(("wait", "break")), "wait", "", "live"),
    Knob(
        "draft.kind",
        WordDomain(("none", "ngram", "self8", "self4", "exit", "trained", "model")),
        "none",
        "",
        "reload",
    ),
    Knob("draft.length", IntDomain(1, 32, (1, 2, 3, 4, 6, 8, 12, 16)), 4, "tokens", "live"),
    Knob("draft.ngram", IntDomain(1, 8, (1, 2, 3, 4, 5)), 3, "tokens", "live"),
    Knob(
        "draft.exit_layer",
        IntDomain(1, 1_024, (0, 6, 12, 18, 24, 27, 30), {0: "auto"}),
        0,
        "layers",
        "live",
    ),
    Knob("draft.adaptive", WordDomain(("off", "on")), "off", "", "live"),
    Knob(
        "sampling.temperature",
        RealDomain(0.0, 2.0, (0.0, 0.3, 0.5, 0.7, 1.0, 1.5), {0.0: "greedy"}),
        0.0,
        "",
        "live",
    ),
)

KNOBS: Mapping[str, Knob] = {knob.name: knob for knob in _ALL}


def find_knob(name: str, allowed: Iterable[str] = KNOBS) -> Knob:
    """The knob whose name is, or uniquely ends with, `name`.

    Raises:
        KnobError: unknown (names the nearest) or ambiguous (names the candidates).
    """
    pool = list(allowed)
    if name in pool:
        return KNOBS[name]
    endings = [full for full in pool if full.endswith("." + name)]
    if len(endings) == 1:
        return KNOBS[endings[0]]
    if endings:
        raise KnobError(f"{name!r} is ambiguous: {', '.join(sorted(endings))}")
    raise KnobError(f"no knob is named {name!r}; nearest: {nearest_knob(name, pool)}")


def nearest_knob(word: str, allowed: Iterable[str] = KNOBS) -> str:
    """The full name of the knob closest in spelling, by its whole name or its ending."""
    pool = list(allowed)
    shorts = {full.rsplit(".", 1)[-1]: full for full in pool} | {full: full for full in pool}
    return shorts[nearest_name(word, shorts)]


def parse_setting(text: str, allowed: Iterable[str] = KNOBS) -> tuple[str, Value]:
    """`batch=8` -> ("schedule.batch", 8). Raises KnobError as `find_knob` and the domains do."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise KnobError(f"{text!r} is not a setting; write knob=value, for example batch=8")
    knob = find_knob(name.strip(), allowed)
    try:
        return knob.name, knob.domain.parse(value.strip())
    except KnobError as error:
        raise KnobError(f"{knob.name}: {error}") from None
