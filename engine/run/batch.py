"""One pass as tensors: the rows to run, and the context their attention needs.

A pass is *ragged*: the tokens of all its sequences lie end to end as T rows, so the linear layers see
one matrix whatever the lengths. Only attention knows which rows belong together.
"""

from __future__ import annotations

from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from engine.cache.kv_cache import Addresses, KVCache, Reading
from engine.schedule.scheduler import Phase, Piece
from kernels.attention.fused import attention
from kernels.attention.mask import additive, visible


@dataclass(frozen=True)
class Span:
    """Sequences attended in one kernel call: neighbours in the cache, equally many rows each.

    Rows `start` .. `start + sequences * queries - 1` of the pass belong to it. `mask` is additive
    [B, 1, L, S] or None; `causal` says that row i of each sequence sees exactly keys 0..i.
    """

    start: int
    sequences: int
    queries: int
    reading: Reading
    mask: Tensor | None
    causal: bool


@dataclass(frozen=True)
class AttentionContext:
    """What attention must know beyond its inputs: where to write, what to read, what to hide."""

    cache: KVCache
    addresses: Addresses
    spans: tuple[Span, ...]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store this pass's keys and values, then attend over all that each row may see.

        `query` [T, heads, D], `key` and `value` [T, kv_heads, D] -> [T, heads · D].
        """
        self.cache.write(layer, self.addresses, key, value)
        outputs = [_attend_span(span, layer, query) for span in self.spans]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _attend_span(span: Span, layer: int, query: Tensor) -> Tensor:
    rows = query[span.start : span.start + span.sequences * span.queries]
    attended = attention(
        rows.view(span.sequences, span.queries, *query.shape[1:]),
        span.reading.keys[layer],
        span.reading.values[layer],
        span.mask,
        span.causal,
    )
    return attended.flatten(0, 1)


@dataclass(frozen=True)
class Batch:
    """`input_ids` and `positions` are [T]; `last_rows` [B] is each sequence's last row."""

    phase: Phase
    sequence_ids: tuple[int, ...]
    input_ids: Tensor
    positions: Tensor
    last_rows: Tensor
    context: AttentionContext


def prepare(
    phase: Phase,
    pieces: Ordered[Piece],
    cache: KVCache,
    window: int | None,
    dtype: torch.dtype,
    device: str,
) -> Batch:
    """Lay out a plan's pieces as one ragged batch and reserve their cache addresses.

    The rows stand in the order of the cache's slots, so that attention finds neighbours.
    """
    ordered = sorted(pieces, key=lambda piece: cache.slot(piece.sequence.id))
    ids = tuple(piece.sequence.id for piece in ordered)
    counts = [piece.count for piece in ordered]
    starts = [cache.length(sequence) for sequence in ids]
    tokens = [token for piece in ordered for token in piece.sequence.pending(piece.count)]
    return lay_out(phase, ids, starts, counts, tokens, cache, window, dtype, device)


def lay_out(
    phase: Phase,
    ids: tuple[int, ...],
    starts: Ordered[int],
    counts: Ordered[int],
    tokens: Ordered[int],
    cache: KVCache,
    window: int | None,
    dtype: torch.dtype,
    device: str,
) -> Batch:
    """The batch of `counts[b]` tokens of each sequence, from position `starts[b]` on.

    `ids` are ordered by cache slot; `tokens` holds all T of them end to end.
    """
    positions = [place for s, n in zip(starts, counts, strict=True) for place in range(s, s + n)]
    addresses = cache.append(ids, counts)
    edges = [0]
    for count in counts:
        edges.append(edges[-1] + count)
    spans = tuple(
        _span(
            edges[low], ids[low:high], starts[low:high], counts[low], cache, window, dtype, device
        )
        for low, high in pairwise(_cuts(ids, counts, cache))
    )
    return Batch(
        phase=phase,
        sequence_ids=ids,
        input_ids=torch.tensor(tokens, device=device),
        positions=torch.tensor(positions, device=device),
        last_rows=torch.tensor([edge - 1 for edge in edges[1:]], device=device),
        context=AttentionContext(cache, addresses, spans),
    )


def _cuts(ids: Ordered[int], counts: Ordered[int], cache: KVCache) -> list[int]:
    """Where one kernel call must end and the next begin: 0, ..., B.

    Decode rows in adjacent slots go together, short beside long (the padding is masked: at batch
    8 and 32 to 1,024 tokens that costs less than a call a sequence). Prefill goes by sequence,
    where the kernel skips the future half by itself.
    """
    cuts = [0]
    for index in range(1, len(ids)):
        adjacent = cache.slot(ids[index]) == cache.slot(ids[index - 1]) + 1
        if not (adjacent and counts[index] == counts[index - 1] == 1):
            cuts.append(index)
    return [*cuts, len(ids)]


def _span(
    start: int,
    ids: Ordered[int],
    starts: Ordered[int],
    count: int,
    cache: KVCache,
    window: int | None,
    dtype: torch.dtype,
    device: str,
) -> Span:
    last = max(starts) + count
    # With a window no row looks further back than its own position - (window - 1).
    first = 0 if window is None else max(0, min(starts) - window + 1)
    alone = len(set(starts)) == 1
    windowed = window is not None and last - first > window
    causal = count > 1 and alone and starts[0] == 0 and not windowed
    mask = None
    if not causal and (count > 1 or not alone or windowed):
        places = torch.tensor([[s + i for i in range(count)] for s in starts], device=device)
        mask = additive(visible(places, first, last - first, window), dtype)
    return Span(start, len(ids), count, cache.read(ids, first, last), mask, causal)
