"""Decode attention over a paged cache: the queries are gathered to the blocks, not the blocks to
the queries.

Scores are computed where the keys lie, block by block, and each row's softmax is put together from
its blocks; the cache itself is not copied. For a row's query q and the blocks i of its table:

    s_i = q · K_iᵀ / sqrt(D)      m = max s      p_i = exp(s_i - m)      out = Σ p_i V_i / Σ Σ p_i

A block that several rows see is multiplied by all of their queries at once.

Scores, weights and sums are float32. Keys in bfloat16 are widened a piece at a time, since a score
rounded to 8 bits is wrong in its first decimal; values are multiplied as they are.

µs of one Zen 4 core a layer, torch 2.13, 8 rows, 9 query heads on 3 KV heads of 64: blocks of 16
against the fused kernel over a contiguous cache of the same tokens, padded to the longest:

                          512 tokens each        32 to 1,024 tokens
    float32   contiguous     800                    1616
              here          1015                     838
    bfloat16  contiguous     830                    1659
              here          1072                     877

Tried and left: bringing each row's vectors together (1770 at 512 in float32; taken for blocks of
fewer than 4 tokens, whose products are too small), torch's fused kernel over all blocks as a batch
and its log-sum-exp (nearly three times this), every query against the whole pool (work grows with
the square of the rows), and the rows' sums as a product with a 0-1 matrix (three times an embedding
bag, and one row's NaN reaches all).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor


class Blocks(Protocol):
    """One side of the pool, keys or values, by the stacks of a pattern."""

    def pieces(self, stack: int) -> Iterator[Tensor]:
        """A stack's blocks in order, some at a time: [C, kv_heads, bs, D], good until the next.

        Keys are float32; values may be what they are kept as.
        """
        ...


@dataclass(frozen=True)
class Stack:
    """U blocks, each of them seen by up to R rows at once.

    An *item* is a block, a KV head and one of R places for rows, in this order: `queries`
    [U · kv · R] int64 names each item's query as row · kv_heads + head. A place that no row takes
    may name any; its scores are computed and never looked at. `mask` [U · kv, R, bs] float32 is
    added to the scores (0 or -inf); None hides nothing.
    """

    places: int
    queries: Tensor
    mask: Tensor | None

    @property
    def items(self) -> int:
        return self.queries.shape[0]


@dataclass(frozen=True)
class Pattern:
    """Who sees what in one decode step: B rows, the same for every layer.

    Items are numbered through all stacks. `seen` [P · kv_heads] int64 lists the items of query
    (row 0, head 0), then of (row 0, head 1) and so on; `offsets` [B · kv_heads] int64 says where
    each list begins. No list is empty.
    """

    stacks: tuple[Stack, ...]
    seen: Tensor
    offsets: Tensor
    block_size: int


def attention(query: Tensor, pattern: Pattern, keys: Blocks, values: Blocks) -> Tensor:
    """softmax(Q Kᵀ / sqrt(D)) V, one query a row: [B, heads, D] -> [B, heads · D].

    Temporary bytes at the peak, for I items of g query heads: 4 · I · g · (bs + D), scores and
    gathered queries, then weights and sums; with values in 16 bits 2 · I · g · D more. What
    `pieces` makes comes on top.
    """
    batch, heads, width = query.shape
    kv_heads = pattern.offsets.shape[0] // batch
    group = heads // kv_heads
    scaled = query.to(torch.float32) / math.sqrt(width)
    scores = _scores(scaled.view(batch * kv_heads, group * width), pattern, keys, group)
    highest = _of_each_query(scores.amax(dim=-1), pattern, "max")  # [B · kv, g]
    for stack, part in zip(pattern.stacks, _parts(scores, pattern), strict=True):
        part -= highest.index_select(0, stack.queries)[:, :, None]
    weights = scores.exp_()
    whole = _of_each_query(weights.sum(dim=-1), pattern, "sum")  # [B · kv, g]
    partial = _weighted(weights, pattern, values, width)
    out = _of_each_query(partial.flatten(1), pattern, "sum").view(-1, group, width)
    return (out / whole[:, :, None]).view(batch, heads * width).to(query.dtype)


def _scores(query: Tensor, pattern: Pattern, keys: Blocks, group: int) -> Tensor:
    """Masked scores [I, g, bs] of queries [B · kv, g · D]."""
    out = _room(query, pattern, group, pattern.block_size)
    for index, (stack, part) in enumerate(zip(pattern.stacks, _parts(out, pattern), strict=True)):
        gathered = query.index_select(0, stack.queries)  # [U · kv · R, g · D]
        gathered = gathered.view(-1, stack.places * group, query.shape[1] // group)
        turned = (piece.transpose(2, 3) for piece in keys.pieces(index))
        _multiply(gathered, turned, out=part.view(-1, stack.places * group, part.shape[-1]))
        if stack.mask is not None:
            part.view(-1, stack.places, group, part.shape[-1]).add_(stack.mask[:, :, None])
    return out


def _weighted(weights: Tensor, pattern: Pattern, values: Blocks, width: int) -> Tensor:
    """Each item's weights [g, bs] times its block's values: [I, g, D]."""
    group, size = weights.shape[1:]
    out = _room(weights, pattern, group, width)
    parts = zip(pattern.stacks, _parts(weights, pattern), _parts(out, pattern), strict=True)
    for index, (stack, part, sums) in enumerate(parts):
        tall = stack.places * group
        _multiply(part.view(-1, tall, size), values.pieces(index), out=sums.view(-1, tall, width))
    return out


def _room(like: Tensor, pattern: Pattern, group: int, width: int) -> Tensor:
    """[I, g, width] for all items."""
    return like.new_empty((sum(stack.items for stack in pattern.stacks), group, width))


def _multiply(left: Tensor, right: Iterator[Tensor], out: Tensor) -> None:
    """`left` [U · kv, m, k] times the pieces [C, kv, k, n] of `right`, in `out` [U · kv, m, n]."""
    low = 0
    for piece in right:
        high = low + piece.shape[0] * piece.shape[1]
        matrices = piece.flatten(0, 1)
        if piece.dtype == out.dtype:
            torch.bmm(left[low:high], matrices, out=out[low:high])
        else:
            out[low:high] = torch.bmm(left[low:high].to(piece.dtype), matrices)
        low = high


def _parts(items: Tensor, pattern: Pattern) -> Sequence[Tensor]:
    """[I, ...] cut by stack."""
    return items.split_with_sizes([stack.items for stack in pattern.stacks])


_MODES = {"sum": 0, "max": 2}


def _of_each_query(items: Tensor, pattern: Pattern, mode: Literal["sum", "max"]) -> Tensor:
    """The sum or maximum of each query's items, [I, n] -> [B · kv, n]: an embedding bag.

    Reads the items that are seen and no other, so that no row depends on what another's blocks
    hold, or on what was left in a free one.
    """
    bags: Tensor = torch.embedding_bag(items, pattern.seen, pattern.offsets, False, _MODES[mode])[0]
    return bags


def multiplies(dtype: torch.dtype, device: str) -> bool:
    """Whether this machine has products of `dtype` that need no widening first.

    float16 is never one of them: a block's sum of weights times values, not yet divided by the
    whole, could pass its largest number.
    """
    if dtype == torch.bfloat16 and device == "cpu":
        built_in: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        return built_in and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype in (torch.float32, torch.bfloat16)
