"""One pass as tensors: the rows to run, and the context their attention needs.

A pass is *ragged*: the tokens of all its sequences lie end to end as T rows, so the linear layers
see one matrix whatever the lengths. Only attention knows which rows belong together.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from engine.cache.kv_cache import Addresses, KVCache, Span
from engine.schedule.plan import Phase, Plan


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
    """`input_ids` and `positions` are [T]; `last_rows` [B] is each sequence's last row, `counts`
    says how many it has."""

    phase: Phase
    sequence_ids: tuple[int, ...]
    input_ids: Tensor
    positions: Tensor
    last_rows: Tensor
    counts: tuple[int, ...]
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
            tuple(piece.tokens for piece in pieces),
        )

    def of_tokens(self, phase: Phase, ids: tuple[int, ...], tokens: Ordered[Ordered[int]]) -> Batch:
        """The next `tokens[b]` of each sequence `ids[b]`, ids in the order of their cache slots.

        The cache grows by them: their addresses are reserved here and written by the pass.
        """
        starts = [self.cache.length(sequence) for sequence in ids]
        counts = [len(run) for run in tokens]
        addresses = self.cache.append(ids, tokens)
        spans = self.cache.spans(
            ids, starts, counts, self.window, self.dtype, by_row=phase == "decode"
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
            counts=tuple(counts),
            context=AttentionContext(self.cache, addresses, spans),
        )

    def _tensor(self, values: Ordered[int] | Ordered[Ordered[int]]) -> Tensor:
        return torch.tensor(values, device=self.device)
