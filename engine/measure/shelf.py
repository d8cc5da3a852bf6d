"""Weights made ready by precision, kept for as long as the model itself is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from engine.measure.workload import TextTokenizer
from engine.model.config import ModelConfig
from engine.model.llama import Llama


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


class Shelf:
    """One model in every precision asked for so far: packing takes seconds, so it is done once."""

    def __init__(self, loaded: Loaded, device: str = "cpu") -> None:
        self._loaded = loaded
        self._device = device
        self._ready: dict[str, Llama] = {}

    def llama(self, precision: str) -> Llama:
        """The model in `precision`, made on first use. Raises ValueError for an unknown one."""
        if precision not in self._ready:
            self._ready[precision] = Llama(
                self._loaded.config, self._loaded.tensors, precision, self._device
            )
        return self._ready[precision]

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
