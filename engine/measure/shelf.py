"""Weights made ready by precision, kept for as long as the model itself is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol, TypeVar

import msgspec
from torch import Tensor

from engine.config import EngineConfig
from engine.drafters import SELF_BITS, Drafters, self_recipe
from engine.measure.dequantised import DequantisedTensors
from engine.measure.quantising import UNWATCHED, Check, OnPressed, Watch
from engine.measure.workload import TextTokenizer
from engine.model.config import ModelConfig
from engine.model.llama import Llama
from engine.quant.store import quantised_weights
from engine.quant.weights import QuantisedWeights
from engine.recipe import Recipe
from engine.speculate.head_file import shipped_shape, trained_head
from engine.speculate.make import DraftWith

Value = TypeVar("Value")
Place = tuple[Recipe, str]
"""A recipe, and the precision of the run."""


class ShelfTokenizer(TextTokenizer, Protocol):
    """What measuring needs of a tokenizer: `engine.model.tokenizer.Tokenizer` has it all."""

    def decode(self, ids: list[int]) -> str: ...

    def chat(self, messages: list[tuple[str, str]]) -> list[int]: ...


class Loaded(Protocol):
    """The part of `engine.model.loader.LoadedModel` that a shelf keeps."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def tensors(self) -> Mapping[str, Tensor]: ...

    @property
    def tokenizer(self) -> ShelfTokenizer: ...

    @property
    def digest(self) -> str: ...

    @property
    def name(self) -> str: ...


def stored_or_made(
    loaded: Loaded, recipe: Recipe, precision: str, pressed: OnPressed, check: Check
) -> QuantisedWeights:
    """From disk where they lie, else made and laid there."""
    return quantised_weights(loaded, recipe, precision, on_pressed=pressed, check=check)


Quantise = Callable[[Loaded, Recipe, str, OnPressed, Check], QuantisedWeights]
"""(model, recipe, precision, told of every matrix, raises to stop) -> weights, made or found."""

KEPT = 4
"""Recipes whose weights are kept at hand: those of a trial's two builds and of their drafts."""


class Shelf:
    """One model in every precision and recipe asked for so far: packing takes seconds, quantising
    up to minutes, so both are done once. Of recipes the last `KEPT` stay."""

    def __init__(
        self,
        loaded: Loaded,
        device: str = "cpu",
        quantise: Quantise = stored_or_made,
        other: Loaded | None = None,
    ) -> None:
        """`other` is another model of the same tokenizer, which can draft for this one."""
        self._loaded = loaded
        self._other = None if other is None else Shelf(other, device, quantise)
        self._device = device
        self._quantise = quantise
        self._ready: dict[str, Llama] = {}
        self._weights: dict[Place, QuantisedWeights] = {}
        self._low_bit: dict[Place, Llama] = {}

    def llama(
        self,
        precision: str,
        recipe: Recipe | None = None,
        crossover: int = 0,
        watch: Watch = UNWATCHED,
    ) -> Llama:
        """The model in `precision`, quantised by `recipe` if one is given; made on first use.

        Raises:
            ValueError: an unknown precision, or a recipe that this model cannot take.
            Whatever `watch` raises to stop.
        """
        if recipe is None:
            if precision not in self._ready:
                self._ready[precision] = self._make(precision)
            return self._ready[precision]
        place = (recipe, precision)
        weights = self.quantised(recipe, precision, watch)
        if place not in self._low_bit:
            _make_room(self._low_bit)
            self._low_bit[place] = self._make(precision, weights, watch.check)
        return _latest(self._low_bit, place).with_crossover(crossover)

    def holds(self, precision: str, recipe: Recipe | None = None) -> bool:
        """Whether `llama` would give it without making it."""
        if recipe is None:
            return precision in self._ready
        return (recipe, precision) in self._low_bit

    def quantised(
        self, recipe: Recipe, precision: str, watch: Watch = UNWATCHED
    ) -> QuantisedWeights:
        """The weights that `recipe` makes, with their report. Raises as `llama`."""
        place = (recipe, precision)
        if place not in self._weights:
            watch.begin(recipe)
            _make_room(self._weights)
            made = self._quantise(self._loaded, recipe, precision, watch.pressed, watch.check)
            self._weights[place] = _found(made)
            return made
        return _latest(self._weights, place)

    def drafting(self, config: EngineConfig, target: Llama, watch: Watch = UNWATCHED) -> DraftWith:
        """What drafts for `target`, the network of `config`; None where nothing beside it does.

        Raises:
            ValueError: nothing of the kind can draft for this model.
            Whatever `watch` raises to stop.
        """
        kind, precision = config.draft.kind, config.run.precision
        if kind in SELF_BITS:
            recipe = self_recipe(kind, self.config)
            return self.llama(precision, recipe, config.weights.crossover, watch)
        if kind == "trained":
            return trained_head(self.digest, target)
        if kind == "model":
            if self._other is None:
                raise ValueError(self.drafters.why_not(kind))
            return self._other.llama(precision)
        return None

    @property
    def drafters(self) -> Drafters:
        """What can draft beside the model itself."""
        other = self._other
        return Drafters(
            trained=shipped_shape(self.digest),
            other=None if other is None else other.config,
            other_name="" if other is None else other.name,
        )

    def judge(self, precision: str, recipe: Recipe | None) -> Llama:
        """The float32 model that a build's answers are held to: with the values its quantised
        weights stand for, so that a wrong kernel cannot hide behind a coarse grid.

        Such a one is as large as the full model and is not kept here.
        """
        if recipe is None:
            return self.llama("float32")
        weights = self.quantised(recipe, precision)
        tensors = DequantisedTensors(self._loaded.tensors, self._loaded.config, weights)
        return Llama(self._loaded.config, tensors, "float32", self._device)

    def _make(
        self,
        precision: str,
        weights: QuantisedWeights | None = None,
        check: Check = UNWATCHED.check,
    ) -> Llama:
        return Llama(self.config, self.tensors, precision, self._device, weights, check=check)

    @property
    def config(self) -> ModelConfig:
        return self._loaded.config

    @property
    def tensors(self) -> Mapping[str, Tensor]:
        """As read from disk."""
        return self._loaded.tensors

    @property
    def tokenizer(self) -> ShelfTokenizer:
        return self._loaded.tokenizer

    @property
    def digest(self) -> str:
        return self._loaded.digest

    @property
    def name(self) -> str:
        return self._loaded.name


def _found(weights: QuantisedWeights) -> QuantisedWeights:
    """As they are found the next time: at no cost."""
    report = msgspec.structs.replace(weights.report, seconds=0.0, cached=True)
    return replace(weights, report=report)


def _latest(kept: dict[Place, Value], place: Place) -> Value:
    """The value, moved to the end: the first is the one not asked for the longest."""
    kept[place] = kept.pop(place)
    return kept[place]


def _make_room(kept: dict[Place, Value]) -> None:
    """Let go of the one not asked for the longest, before another takes its memory."""
    while len(kept) >= KEPT:
        del kept[next(iter(kept))]
