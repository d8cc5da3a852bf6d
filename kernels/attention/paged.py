"""Decode attention over a paged cache: the queries are gathered to the blocks, not the blocks to
the queries.

Scores are computed where the keys lie, block by block; the cache itself is not copied. They are a
64th of the keys, so they are what moves: to each query's row, where softmax is one call, and back
to the blocks as weights. For a query q and the blocks i of its row's table:

    s_i = q · K_iᵀ / sqrt(D)      w = softmax(s_1 .. s_n)      out = Σ w_i V_i

A block that several rows see is multiplied by all of their queries at once.

Scores and weights are float32. Keys in bfloat16 are widened a piece at a time, since a score
rounded to 8 bits is wrong in its first decimal; values are multiplied as they are.

µs of one Zen 4 core a layer, torch 2.13, 8 rows, 9 query heads on 3 KV heads of 64: blocks of 16
against the fused kernel over a contiguous cache of the same tokens, padded to the longest:

                          512 tokens each        32 to 1,024 tokens
    float32   contiguous     831                    1654
              here           826                     807
    bfloat16  contiguous     868                    1733
              here           811                     813

Tried and left: each row's vectors brought together (twice this at 512 in float32; taken for blocks
of fewer than 4 tokens, whose products are too small), or its blocks, four to a product (1.4 times),
torch's fused kernel over all blocks as a batch and its log-sum-exp (nearly three times), every
query against the whole pool (work grows with the square of the rows), and a softmax put together
from each block's largest and sum by embedding bags (1.1 to 1.3 times).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Blocks(Protocol):
    """One side of the pool, keys or values, by the stacks of a pattern."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the pieces: float32 for keys, for values perhaps what they are kept as."""
        ...

    def pieces(self, stack: int) -> Iterator[Tensor]:
        """A stack's blocks in order, some at a time: [C, kv_heads, bs, D], good until the next."""
        ...


@dataclass(frozen=True)
class Stack:
    """U blocks, each of them seen by up to R rows at once.

    An *item* is a block, a KV head and one of R places for rows, in this order: `queries`
    [U · kv · R] int64 names each item's query as row · kv_heads + head. A place that no row takes
    may name any; its scores are computed and never looked at.
    """

    places: int
    queries: Tensor

    @property
    def items(self) -> int:
        return self.queries.shape[0]


@dataclass(frozen=True)
class Pattern:
    """Who sees what in one decode step: B rows, the same for every layer.

    Items are numbered through all stacks, and an item has a line of scores for each of the g query
    heads of its KV head: line = item · g + head in the group. A row has M cells for blocks, in the
    order of positions, where M is what the longest needs: cell = (row · heads + head) · M + block.

    `lines` [B · heads · M] int64 is the line of every cell, for a cell past the row's own blocks
    any line of the same query; `cells` [I · g] int64 is the cell of every line, for a place that no
    row takes any. `mask` [B, M · bs] float32 is added to a row's scores (0 or -inf); None hides
    nothing. `seen` [P · kv_heads] int64 lists the items of query (row 0, head 0), then of (row 0,
    head 1) and so on; `offsets` [B · kv_heads] int64 says where each list begins. No list is empty.
    """

    stacks: tuple[Stack, ...]
    lines: Tensor
    cells: Tensor
    mask: Tensor | None
    seen: Tensor
    offsets: Tensor
    block_size: int

    @property
    def items(self) -> int:
        return sum(stack.items for stack in self.stacks)


def attention(query: Tensor, pattern: Pattern, keys: Blocks, values: Blocks) -> Tensor:
    """softmax(Q Kᵀ / sqrt(D)) V, one query a row: [B, heads, D] -> [B, heads · D].

    Temporary bytes at the peak, for I items of g query heads, C = B · heads · M cells and values of
    b bytes a number: the largest of 4 · I · g · (bs + D), 4 · bs · (I · g + C), 8 · bs · C and
    b · I · g · (bs + D). What `pieces` makes comes on top of the first and last.
    """
    batch, heads, width = query.shape
    kv_heads = pattern.offsets.shape[0] // batch
    group, size = heads // kv_heads, pattern.block_size
    scaled = query.to(torch.float32) / math.sqrt(width)
    scores = _scores(scaled.view(batch * kv_heads, group * width), pattern, keys, group)
    rows = scores.view(-1, size).index_select(0, pattern.lines).view(batch, heads, -1)
    del scores
    if pattern.mask is not None:
        rows += pattern.mask[:, None]
    rows = rows.softmax(dim=-1)
    weights = rows.view(-1, size).index_select(0, pattern.cells)
    del rows
    weights = weights.to(values.dtype)
    partial = _weighted(weights.view(-1, group, size), pattern, values, width)
    return _sum_by_query(partial, pattern).view(batch, heads * width).to(query.dtype)


def _scores(query: Tensor, pattern: Pattern, keys: Blocks, group: int) -> Tensor:
    """Scores [I, g, bs] of queries [B · kv, g · D], those of hidden places among them."""
    out = query.new_empty((pattern.items, group, pattern.block_size))
    for index, (stack, part) in enumerate(zip(pattern.stacks, _parts(out, pattern), strict=True)):
        tall = stack.places * group
        gathered = query.index_select(0, stack.queries)  # [U · kv · R, g · D]
        turned = (piece.transpose(2, 3) for piece in keys.pieces(index))
        left = gathered.view(-1, tall, query.shape[1] // group)
        _multiply(left, turned, out=part.view(-1, tall, pattern.block_size))
    return out


def _weighted(weights: Tensor, pattern: Pattern, values: Blocks, width: int) -> Tensor:
    """Each item's weights [g, bs] times its block's values: [I, g, D]."""
    out = weights.new_empty((pattern.items, weights.shape[1], width))
    parts = zip(pattern.stacks, _parts(weights, pattern), _parts(out, pattern), strict=True)
    for index, (stack, part, sums) in enumerate(parts):
        tall = stack.places * weights.shape[1]
        left = part.view(-1, tall, pattern.block_size)
        _multiply(left, values.pieces(index), out=sums.view(-1, tall, width))
    return out


def _multiply(left: Tensor, right: Iterator[Tensor], out: Tensor) -> None:
    """`left` [U · kv, m, k] times the pieces [C, kv, k, n] of `right`, in `out` [U · kv, m, n]."""
    low = 0
    for piece in right:
        matrices = piece.flatten(0, 1)
        high = low + matrices.shape[0]
        torch.bmm(left[low:high], matrices, out=out[low:high])
        low = high


def _parts(items: Tensor, pattern: Pattern) -> Sequence[Tensor]:
    """[I, ...] cut by stack."""
    return items.split_with_sizes([stack.items for stack in pattern.stacks])


def _sum_by_query(items: Tensor, pattern: Pattern) -> Tensor:
    """The sum of each query's items, [I, g, D] -> [B · kv, g · D]: an embedding bag.

    Reads the items that are seen and no other, so that no row depends on what another's blocks
    hold, or on what was left in a free one. Sums of 16-bit items are float32, rounded at the end.
    """
    bags: Tensor = torch.embedding_bag(items.flatten(1), pattern.seen, pattern.offsets, False, 0)[0]
    return bags


def multiplies(dtype: torch.dtype, device: str) -> bool:
    """Whether this machine has products of `dtype` that need no widening first."""
    if dtype == torch.bfloat16 and device == "cpu":
        built_in: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        return built_in and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype in (torch.float32, torch.bfloat16)
