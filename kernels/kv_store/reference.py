"""Writing keys and values into the cache, and keeping them in 8 and 4 bits, number by number."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.kv_store import int4, int8


def store(pool: Tensor, rows: Tensor, vectors: Tensor) -> None:
    """pool[rows[i]] = vectors[i]. `pool` [R, D], `rows` [n] distinct, `vectors` [n, D]."""
    for index, row in enumerate(rows.tolist()):
        pool[row] = vectors[index]


def kept_in_8_bits(vector: list[float]) -> list[float]:
    """What a finite vector reads back as: code · scale, the code the nearest whole number."""
    largest = max(abs(number) for number in vector)
    scale = _half(largest * int8.WIDENING / int8.LEVELS + int8.SMALLEST)
    return [round(number / scale) * scale for number in vector]


def kept_in_4_bits(vector: list[float]) -> list[float]:
    """What a finite vector reads back as: least + code · scale, the code 0 to 15."""
    least = _half(min(vector))
    span = max(vector) - least
    scale = _half(span * int4.WIDENING / int4.LEVELS + int4.SMALLEST)
    codes = [min(max(round((number - least) / scale), 0), int4.LEVELS) for number in vector]
    return [least + code * scale for code in codes]


def _half(number: float) -> float:
    """`number` as float16 holds it."""
    return float(torch.tensor(number, dtype=torch.float32).to(torch.float16))
