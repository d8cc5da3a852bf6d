"""Who can draft for a loaded model, and what that holds and reads by formula. Torch-free.

The engine process says which drafters there are when it loads a model (`Drafters`); price, legality
and the forge ask here what each would take.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from engine.cache_plan import CachePlan
from engine.config import DraftConfig, EngineConfig, WeightsConfig
from engine.fit import weight_bytes
from engine.kv_format import vector_bytes
from engine.model.config import ModelConfig
from engine.precision import element_bytes
from engine.recipe import Recipe, read_bytes, recipe_of

SELF_BITS = {"self8": 8, "self4": 4}
"""Kinds that are the target itself in fewer bits."""

FREE_KINDS = frozenset({"none", "ngram", "exit"})
"""Kinds that hold nothing beside the target."""

_FLOAT, _INDEX = 4, 8


class TrainedHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shape of the head that ships for a model: see `engine.speculate.head`."""

    hidden: int
    inner: int
    words: int

    def nbytes(self, size: int) -> int:
        """Its matrices at `size` bytes a number, three gains with their floor constants, and the
        ids of its words."""
        gains = 3 * (self.hidden + 1) * _FLOAT
        return self._elements * size + gains + self.words * _INDEX

    def read(self, size: int) -> int:
        """Bytes that one drafted token cannot avoid to read."""
        return self._elements * size

    @property
    def _elements(self) -> int:
        return self.hidden * (5 * self.inner + self.words)


class Drafters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What can draft beside the model itself: a head trained for it, another model."""

    trained: TrainedHead | None = None
    other: ModelConfig | None = None
    other_name: str = ""

    def why_not(self, kind: str) -> str | None:
        """Why nothing of this `kind` can draft here; None where it can."""
        if kind == "trained" and self.trained is None:
            return "no trained draft ships for this model"
        if kind == "model" and self.other is None:
            return "no draft model was named; name one of the same tokenizer with --draft-model"
        return None

    def head(self) -> TrainedHead:
        """Raises ValueError where none ships."""
        if self.trained is None:
            raise ValueError(self.why_not("trained"))
        return self.trained

    def model(self) -> ModelConfig:
        """The other model. Raises ValueError where none was named."""
        if self.other is None:
            raise ValueError(self.why_not("model"))
        return self.other


NO_OTHERS = Drafters()


def self_recipe(kind: str, model: ModelConfig) -> Recipe:
    """How the target itself is quantised to draft: rounded to nearest, groups as its width likes
    them. Made from its full weights, whatever the target's own recipe."""
    return recipe_of(WeightsConfig(bits=SELF_BITS[kind]), model)


def exit_layers(asked: DraftConfig, layers: int) -> int:
    """Layers that an early exit runs: as asked, or nine in ten of them."""
    return min(asked.exit_layer or -(-9 * layers // 10), layers)


def own_cache_plan(shape: ModelConfig, size: int, seats: int, capacity: int) -> CachePlan:
    """The cache of a draft model: a slot for every seat, as long as its context reaches."""
    return CachePlan(
        layout="contiguous",
        capacity=min(capacity, shape.context),
        slots=seats,
        blocks=0,
        block_size=1,
        token_bytes=2 * shape.layers * shape.kv_heads * vector_bytes(shape.head_dim, 0, size),
    )


def held_bytes(
    config: EngineConfig,
    model: ModelConfig,
    drafters: Drafters,
    packed_head: bool = True,
    forms: Collection[str] = (),
) -> int:
    """Bytes that drafting takes beside the target: a network's weights, and the cache of another
    model. `packed_head` and `forms` as in `engine.price`.

    Raises:
        ValueError: nothing of the kind can draft here.
    """
    kind, size = config.draft.kind, element_bytes(config.run.precision)
    if kind in FREE_KINDS:
        return 0
    if kind in SELF_BITS:
        return weight_bytes(model, size, packed_head, self_recipe(kind, model), forms)
    if kind == "trained":
        return drafters.head().nbytes(size)
    other = drafters.model()
    capacity = config.workload.prompt + config.workload.output
    plan = own_cache_plan(other, size, config.schedule.batch, capacity)
    return weight_bytes(other, size, packed_head) + plan.nbytes


def cost_ratio(
    config: EngineConfig, model: ModelConfig, drafters: Drafters, forms: Collection[str] = ()
) -> float:
    """Weights that a drafted token cannot avoid to read, in those of a step of the target: where
    bytes bind, what a token of the draft costs in steps. 0 where it reads none.

    Raises ValueError as `held_bytes`.
    """
    kind, size = config.draft.kind, element_bytes(config.run.precision)
    own = recipe_of(config.weights, model)
    target = read_bytes(own, model, size, forms)
    if kind in ("none", "ngram"):
        return 0.0
    if kind == "exit":
        layers = exit_layers(config.draft, model.layers)
        return read_bytes(own, model, size, forms, layers) / target
    if kind in SELF_BITS:
        return read_bytes(self_recipe(kind, model), model, size, forms) / target
    if kind == "trained":
        return drafters.head().read(size) / target
    other = drafters.model()
    return read_bytes(recipe_of(WeightsConfig(), other), other, size, forms) / target
