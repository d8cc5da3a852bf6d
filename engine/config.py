"""The settings an engine runs under, by section: what a build's knobs set.

Frozen values. `resolve` makes them from a build, for one machine and one model.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from engine.domains import KnobError, Value
from engine.knobs import KNOBS, nearest_knob

Build = Mapping[str, Value]
"""Knob name -> position, for the knobs a player set; the rest stand at their defaults."""


class WorkloadConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked. A `uniform` load gives every request `prompt` and `output` tokens.

    In a `mixed` load they are the longest of each: short chats and long documents are drawn below
    them (see `engine.load`), all beginning with the same `system` tokens, which `prompt` includes.
    `requests` 0 means as many as the batch.
    """

    prompt: int = 128
    output: int = 24
    mix: str = "uniform"
    requests: int = 0
    system: int = 0


class ScheduleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`prefill_chunk` 0 means the whole prompt in one pass."""

    batch: int = 1
    prefill_chunk: int = 0


class RunConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    precision: str = "float32"
    threads: int = 1


class CacheConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How keys and values are kept.

    `layout`: contiguous (a slot of the longest length for each request) or paged (blocks of
    `block_size` tokens). `bits` 0 keeps them in the run's precision, 16 in 16 bits, 8 and 4 as
    integers with a scale for each token and head. `prefix_sharing`: on or off, paged only.
    """

    layout: str = "contiguous"
    block_size: int = 16
    bits: int = 0
    prefix_sharing: str = "off"


class WeightsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How weights are kept: `engine.recipe` spells it out for one model.

    `bits` 0 keeps them in the run's precision. `attention`, `mlp`, `edges` (every matrix of the
    first and last `edge_layers` layers) 0 follow it, 16 stay full; `embedding` 0 is full where
    `bits` is, and 8 elsewhere. `group` weights of a row share a scale, -1 the whole row, 0 what
    suits the width. `calibration` counts tokens, for methods that look at activations. A pass of
    more than `crossover` rows multiplies by weights made dense again; 0 never does.
    """

    bits: int = 0
    group: int = 0
    symmetric: str = "off"
    method: str = "rtn"
    calibration: int = 4096
    crossover: int = 32
    attention: int = 0
    mlp: int = 0
    embedding: int = 0
    edges: int = 0
    edge_layers: int = 1


class MemoryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The vessel. `budget` is in percent of the model's matrices in float32; 0 is none.

    `overflow`: a request that finds no room waits for it, or breaks the run: `BudgetExceeded`.
    """

    budget: int = 0
    overflow: str = "wait"


class DraftConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who drafts, and how much: up to `length` tokens a request and step.

    `kind`: none; ngram looks up runs of up to `ngram` tokens in the request's own text; self8 and
    self4 are the model itself in fewer bits, exit its first `exit_layer` layers (0: nine in ten),
    all on the target's keys and values; trained is a head made for this model, model another model
    of the same tokenizer. `adaptive`:
    on or off, drafts as long as the last ones were worth.
    """

    kind: str = "none"
    length: int = 4
    ngram: int = 3
    exit_layer: int = 0
    adaptive: str = "off"

    @property
    def most(self) -> int:
        """Tokens that a draft can have: none where nobody drafts."""
        return 0 if self.kind == "none" else self.length


class SamplingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How tokens are drawn: `temperature` 0 takes the likeliest (greedy), 1 draws as the model's
    own probabilities say."""

    temperature: float = 0.0


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    workload: WorkloadConfig = msgspec.field(default_factory=WorkloadConfig)
    schedule: ScheduleConfig = msgspec.field(default_factory=ScheduleConfig)
    run: RunConfig = msgspec.field(default_factory=RunConfig)
    cache: CacheConfig = msgspec.field(default_factory=CacheConfig)
    memory: MemoryConfig = msgspec.field(default_factory=MemoryConfig)
    weights: WeightsConfig = msgspec.field(default_factory=WeightsConfig)
    draft: DraftConfig = msgspec.field(default_factory=DraftConfig)
    sampling: SamplingConfig = msgspec.field(default_factory=SamplingConfig)


def complete(build: Build) -> dict[str, Value]:
    """Every knob's position: the player's where set, the default elsewhere.

    Raises:
        KnobError: an unknown knob or an illegal value.
    """
    positions: dict[str, Value] = {name: knob.default for name, knob in KNOBS.items()}
    for name, value in build.items():
        if name not in KNOBS:
            raise KnobError(f"no knob is named {name!r}; nearest: {nearest_knob(name)}")
        try:
            positions[name] = KNOBS[name].domain.check(value)
        except KnobError as error:
            raise KnobError(f"{name}: {error}") from None
    return positions
