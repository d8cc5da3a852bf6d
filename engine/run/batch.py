"""One pass as tensors: the rows to run, and the context their attention needs.

A pass is *ragged*: the tokens of all its sequences lie end to end as T rows, so the linear layers
see one matrix whatever the lengths. Only attention knows which rows belong together.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from engine.cache.kv_cache import Addresses, KVCache, Reading
from engine.schedule.scheduler import Phase, Plan
from kernels.attention.fused import attention
from kernels.attention.mask import additive, visible


@dataclass(frozen=True)
class Span:
    """Sequences attended in one kernel call: neighbours in the cache, equally many rows each.

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
        """The span's own rows: [B · L, heads, D] -> [B · L, heads · D]."""
        return attention(
            query.view(self.sequences, self.queries, *query.shape[1:]),
            self.reading.keys[layer],
            self.reading.values[layer],
            self.mask,
            self.causal,
        )


@dataclass(frozen=True)
class AttentionContext:
    """What attention must know beyond its inputs: where to write, what to read, what to hide.

    The spans' rows follow one another and make up the pass.
    """

    cache: KVCache
    addresses: Addresses
    spans: tuple[Span, ...]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store this pass's keys and values, then attend over all that each row may see.

        `query` [T, heads, D], `key` and `value` [T, kv_heads, D] -> [T, heads · D].
        """
        self.cache.write(layer, self.addresses, key, value)
        if len(self.spans) == 1:
            return self.spans[0].attend(layer, query)
        parts = query.split_with_sizes([span.rows for span in self.spans])
        return torch.cat(
            [span.attend(layer, part) for span, part in zip(self.spans, parts, strict=True)]
        )


@dataclass(frozen=True)
class Batch:
    """`input_ids` and `positions` are [T]; `last_rows` [B] is each sequence's last row."""

    phase: Phase
    sequence_ids: tuple[int, ...]
    input_ids: Tensor
    positions: Tensor
    last_rows: Tensor
    context: AttentionContext


@dataclass(frozen=True)
class Layout:
    """Lays passes out for one cache and the model that fills it.

    `window` is the model's sliding window, `dtype` that of its queries.
    """

    cache: KVCache
    window: int | None
    dtype: torch.dtype
    device: str

    def of_plan(self, plan: Plan) -> Batch:
        """A plan's pieces, in the order of their cache slots: attention then finds neighbours."""
        slot = self.cache.slot
        pieces = sorted(plan.pieces, key=lambda piece: slot(piece.sequence.id))
        return self.of_tokens(
            plan.phase,
            tuple(piece.sequence.id for piece in pieces),
            tuple(piece.sequence.pending(piece.count) for piece in pieces),
        )

    def of_tokens(self, phase: Phase, ids: tuple[int, ...], tokens: Ordered[Ordered[int]]) -> Batch:
        """The next `tokens[b]` of each sequence `ids[b]`, ids in the order of their cache slots.

        The cache grows by them: their addresses are reserved here and written by the pass.
        """
        starts = [self.cache.length(sequence) for sequence in ids]
        counts = [len(run) for run in tokens]
        addresses = self.cache.append(ids, counts)
        spans = tuple(
            self._span(ids[low:high], starts[low:high], counts[low])
            for low, high in pairwise(self._cuts(ids, counts))
        )
        positions = [
            start + i for start, count in zip(starts, counts, strict=True) for i in range(count)
        ]
        return Batch(
            phase=phase,
            sequence_ids=ids,
            input_ids=self._tensor([token for run in tokens for token in run]),
            positions=self._tensor(positions),
            last_rows=self._tensor([end - 1 for end in accumulate(counts)]),
            context=AttentionContext(self.cache, addresses, spans),
        )

    def _cuts(self, ids: Ordered[int], counts: Ordered[int]) -> list[int]:
        """Where one kernel call must end and the next begin: 0, ..., B.

        Decode rows in adjacent slots go together, short beside long: the padding is masked, and
        costs less than a call a sequence. Prefill goes by sequence, where the kernel skips the
        future half by itself.
        """
        slots = [self.cache.slot(sequence) for sequence in ids]
        together = [
            slots[i] == slots[i - 1] + 1 and counts[i] == counts[i - 1] == 1
            for i in range(1, len(ids))
        ]
        return [0, *(i for i, joined in enumerate(together, 1) if not joined), len(ids)]

    def _span(self, ids: Ordered[int], starts: Ordered[int], count: int) -> Span:
        """`ids` attend with `count` rows each, after `starts` cached tokens."""
        last = max(starts) + count
        # No row looks further back than window - 1 positions before itself.
        first = 0 if self.window is None else max(0, min(starts) - self.window + 1)
        keys = last - first
        hidden_past = self.window is not None and keys > self.window
        level = min(starts) == max(starts)
        causal = count > 1 and last == count and not hidden_past
        mask = None
        if not causal and (count > 1 or not level or hidden_past):
            places = self._tensor([[start + i for i in range(count)] for start in starts])
            mask = additive(visible(places, first, keys, self.window), self.dtype)
        return Span(len(ids), count, self.cache.read(ids, first, last), mask, causal)

    def _tensor(self, values: Ordered[int] | Ordered[Ordered[int]]) -> Tensor:
        return torch.tensor(values, device=self.device)
