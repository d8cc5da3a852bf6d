"""Attention over keys and values that lie side by side: a view where they do, a copy where not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from kernels.attention.fused import attention
from kernels.attention.mask import additive, visible


class Reading(Protocol):
    """Keys and values of some sequences, layer by layer, in the dtype to attend in.

    Row b of [B, kv_heads, S, D] holds sequence b's tokens at S positions in a row. Past the end of
    a shorter sequence stands finite padding, to be masked. What is given is good until the next
    call: a reading may use its memory again.
    """

    def layer(self, index: int) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class DenseSpan:
    """Sequences attended in one call of the fused kernel, equally many rows each.

    `mask` is additive [B, 1, L, S] or None; `causal` says that row i of each sequence sees exactly
    keys 0..i.
    """

    sequences: int
    queries: int
    reading: Reading
    mask: Tensor | None
    causal: bool

    @property
    def rows(self) -> int:
        return self.sequences * self.queries

    def attend(self, layer: int, query: Tensor) -> Tensor:
        keys, values = self.reading.layer(layer)
        shape = (self.sequences, self.queries, *query.shape[1:])
        alike = query.view(shape).to(keys.dtype)
        return attention(alike, keys, values, self.mask, self.causal).to(query.dtype)


@dataclass(frozen=True)
class Extent:
    """Which positions a span reads: `keys` of them from `first` on; what its rows may see."""

    first: int
    keys: int
    mask: Tensor | None
    causal: bool

    @property
    def places(self) -> slice:
        return slice(self.first, self.first + self.keys)


def extent(
    starts: list[int], count: int, window: int | None, dtype: torch.dtype, device: str
) -> Extent:
    """Sequences that attend together with `count` rows each, after `starts` cached tokens."""
    last = max(starts) + count
    # No row looks further back than window - 1 positions before itself.
    first = 0 if window is None else max(0, min(starts) - window + 1)
    keys = last - first
    hidden_past = window is not None and keys > window
    level = min(starts) == max(starts)
    causal = count > 1 and last == count and not hidden_past
    mask = None
    if not causal and (count > 1 or not level or hidden_past):
        places = torch.tensor(
            [[start + i for i in range(count)] for start in starts], device=device
        )
        mask = additive(visible(places, first, keys, window), dtype)
    return Extent(first, keys, mask, causal)
