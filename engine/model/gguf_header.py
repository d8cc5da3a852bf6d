"""What a GGUF file says about itself: its metadata, and where each tensor lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from engine.model.errors import fault

Value = bool | int | float | str | tuple["Value", ...]


class BlockType(NamedTuple):
    """How one tensor type packs a row: `elements` weights in `size` bytes."""

    name: str
    elements: int
    size: int


BLOCK_TYPES: Mapping[int, BlockType] = {
    0: BlockType("F32", 1, 4),
    1: BlockType("F16", 1, 2),
    2: BlockType("Q4_0", 32, 18),
    3: BlockType("Q4_1", 32, 20),
    6: BlockType("Q5_0", 32, 22),
    7: BlockType("Q5_1", 32, 24),
    8: BlockType("Q8_0", 32, 34),
    10: BlockType("Q2_K", 256, 84),
    11: BlockType("Q3_K", 256, 110),
    12: BlockType("Q4_K", 256, 144),
    13: BlockType("Q5_K", 256, 176),
    14: BlockType("Q6_K", 256, 210),
    20: BlockType("IQ4_NL", 32, 18),
    30: BlockType("BF16", 1, 2),
}
"""Readable tensor types by their number in the file. K-quant files fall back to Q5_0, Q5_1 and
IQ4_NL for rows that 256 does not divide, so those belong here too."""

FLOAT_TYPES = frozenset({"F32", "F16", "BF16"})


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies. `shape` is outermost first ([rows, columns]); `start` is absolute."""

    name: str
    shape: tuple[int, ...]
    type: BlockType
    start: int
    size: int


@dataclass(frozen=True)
class GGUFHeader:
    """What a GGUF file says about itself, checked against its size."""

    path: Path
    version: int
    metadata: Mapping[str, Value]
    tensors: Mapping[str, TensorInfo]

    @property
    def quantised(self) -> bool:
        return any(info.type.name not in FLOAT_TYPES for info in self.tensors.values())

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise fault(self.path, f"metadata {key!r} should be text, not {_kind(value)}")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise fault(self.path, f"metadata {key!r} should be true or false, not {_kind(value)}")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise fault(self.path, f"metadata {key!r} should be a whole number, not {_kind(value)}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise fault(self.path, f"metadata {key!r} should be a number, not {_kind(value)}")
        return float(value)

    def texts(self, key: str) -> tuple[str, ...]:
        values = self._list(key)
        texts = tuple(item for item in values if isinstance(item, str))
        if len(texts) != len(values):
            raise fault(self.path, f"metadata {key!r} should be a list of texts only")
        return texts

    def numbers(self, key: str) -> tuple[float, ...]:
        values = self._list(key)
        numbers = tuple(item for item in values if isinstance(item, int | float))
        if len(numbers) != len(values):
            raise fault(self.path, f"metadata {key!r} should be a list of numbers only")
        return numbers

    def _list(self, key: str) -> tuple[Value, ...]:
        value = self._get(key, None)
        if not isinstance(value, tuple):
            raise fault(self.path, f"metadata {key!r} should be a list, not {_kind(value)}")
        return value

    def _get(self, key: str, default: Value | None) -> Value:
        value = self.metadata.get(key, default)
        if value is None:
            raise fault(self.path, f"metadata {key!r} is missing")
        return value


def _kind(value: Value) -> str:
    if isinstance(value, tuple):
        return f"a list of {len(value)}"
    return {bool: "a yes or no", int: "a whole number", float: "a number", str: "text"}[type(value)]
