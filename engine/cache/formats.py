"""The widths a key or value can be kept in: what is allocated, how it is written and read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.kv_format import vector_bytes
from kernels.kv_store import int4, int8

Plane = tuple[int, torch.dtype]
"""Numbers a vector has in one tensor of a format, and their dtype."""
Parts = tuple[Tensor, ...]
"""A format's tensors for some vectors: [..., width] each, in the order of its planes."""


class Format(Protocol):
    """A vector of D numbers as the parts that are kept of it."""

    @property
    def planes(self) -> tuple[Plane, ...]: ...

    def encode(self, vectors: Tensor) -> Parts:
        """[..., D] -> the parts to keep."""
        ...

    def decode(self, parts: Parts, out: Tensor) -> None:
        """Kept parts -> vectors in `out` [..., D], float32."""
        ...


@dataclass(frozen=True)
class Plain:
    """Vectors as they are, in `dtype`."""

    head_dim: int
    dtype: torch.dtype

    @property
    def planes(self) -> tuple[Plane, ...]:
        return ((self.head_dim, self.dtype),)

    def encode(self, vectors: Tensor) -> Parts:
        return (vectors.to(self.dtype),)

    def decode(self, parts: Parts, out: Tensor) -> None:
        out.copy_(parts[0])


@dataclass(frozen=True)
class EightBits:
    """int8 codes and a scale."""

    head_dim: int

    @property
    def planes(self) -> tuple[Plane, ...]:
        return ((self.head_dim, torch.int8), (1, torch.float16))

    def encode(self, vectors: Tensor) -> Parts:
        return int8.quantise(vectors)

    def decode(self, parts: Parts, out: Tensor) -> None:
        codes, scale = parts
        int8.dequantise(codes, scale, out)


@dataclass(frozen=True)
class FourBits:
    """Two codes a byte, a scale and a least value."""

    head_dim: int

    @property
    def planes(self) -> tuple[Plane, ...]:
        return ((self.head_dim // 2, torch.uint8), (1, torch.float16), (1, torch.float16))

    def encode(self, vectors: Tensor) -> Parts:
        return int4.quantise(vectors)

    def decode(self, parts: Parts, out: Tensor) -> None:
        packed, scale, least = parts
        int4.dequantise(packed, scale, least, out)


def make_format(head_dim: int, bits: int, dtype: torch.dtype) -> Format:
    """The format of `cache.bits` in a run of `dtype`.

    16 bits are the run's own dtype where that has 16, and bfloat16 in a float32 run: float16 would
    overflow on the large activations that some models have.

    Raises:
        ValueError: a width there is no format for, or an odd head in 4 bits.
    """
    vector_bytes(head_dim, bits, dtype.itemsize)
    if bits == 8:
        return EightBits(head_dim)
    if bits == 4:
        return FourBits(head_dim)
    return Plain(head_dim, torch.bfloat16 if bits == 16 and dtype.itemsize > 2 else dtype)
