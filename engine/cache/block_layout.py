"""Where each row's blocks stand in a decode step's products, and where its scores go from there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.cache.block_pairs import BlockPairs
from kernels.attention.paged import Pattern, Stack

DENSEST = 1.25
"""Blocks are read in place where the range they span is at most this many times their number."""

Where = slice | Tensor
"""Blocks of the pool: a range, or a list [U] int64."""


class BlockLayout:
    """Blocks of one row in one stack, shared ones in stacks of 2, 4, 8 ... places: no block is
    multiplied by more than twice as many queries as it has.

    `wheres` are the blocks of each stack. Terms as in `kernels.attention.paged.Pattern`.
    """

    def __init__(self, pairs: BlockPairs, kv_heads: int, block_size: int) -> None:
        self._pairs = pairs
        self._size = block_size
        device = pairs.blocks.device
        self._head = torch.arange(kv_heads, device=device)
        self._counts = torch.tensor(pairs.counts, dtype=torch.int64, device=device)
        self._starts = self._counts.cumsum(0) - self._counts  # [B], in pairs
        self._longest = max(pairs.counts)  # M
        self._items = torch.empty(
            (pairs.blocks.shape[0], kv_heads), dtype=torch.int64, device=device
        )
        stacks: list[Stack] = []
        wheres: list[Where] = []
        counts: list[int] = []
        for chosen, places, nth in _by_sharers(pairs):
            base = sum(stack.items for stack in stacks)
            where, count, stack = self._stack(chosen, places, nth, base)
            stacks.append(stack)
            wheres.append(where)
            counts.append(count)
        self._stacks = tuple(stacks)
        self.wheres = tuple(wheres)
        self.longest_stack = max(counts)

    def _stack(
        self, chosen: Tensor | None, places: int, nth: Tensor | None, base: int
    ) -> tuple[Where, int, Stack]:
        """Places some pairs, and notes the items of each."""
        kv_heads = self._head.shape[0]
        blocks, owners = (
            part if chosen is None else part[chosen]
            for part in (self._pairs.blocks, self._pairs.owners)
        )
        where, count, local = _locate(blocks, places)
        slot = local if nth is None else local * places + nth
        owner_of = torch.zeros(count * places, dtype=torch.int64, device=owners.device)
        owner_of.index_copy_(0, slot, owners)
        queries = owner_of.view(count, 1, places) * kv_heads + self._head[:, None]  # [U, kv, R]
        first = local * (kv_heads * places) if nth is None else local * (kv_heads * places) + nth
        mine = (first + base)[:, None] + self._head * places  # [pairs, kv]
        if chosen is None:
            self._items = mine
        else:
            self._items.index_copy_(0, chosen, mine)
        return where, count, Stack(places, queries.flatten())

    def pattern(self, group: int, mask: Tensor | None) -> Pattern:
        """For `group` query heads a KV head."""
        owners, kv_heads = self._pairs.owners, self._head.shape[0]
        device = owners.device
        nth = torch.arange(owners.shape[0], device=device) - self._starts[owners]  # in its row
        member = torch.arange(group, device=device)
        # A row's items by cell, [B, M, kv]; cells past its blocks look at its first.
        own = self._items[self._starts][:, None].repeat(1, self._longest, 1)
        own.view(-1, kv_heads).index_copy_(0, owners * self._longest + nth, self._items)
        lines = own.transpose(1, 2)[:, :, None] * group + member[:, None]  # [B, kv, g, M]
        first = (owners[:, None] * kv_heads + self._head) * group * self._longest + nth[:, None]
        cells = torch.zeros(
            sum(stack.items for stack in self._stacks), dtype=torch.int64, device=device
        )
        cells.index_copy_(0, self._items.flatten(), first.flatten())
        # Pair i of row b stands, for head h, at kv · start_b + h · count_b + (i - start_b).
        at = (kv_heads * self._starts[owners] + nth)[:, None]
        at = at + self._head * self._counts[owners][:, None]
        seen = torch.empty_like(self._items).flatten()
        seen.index_copy_(0, at.flatten(), self._items.flatten())
        offsets = kv_heads * self._starts[:, None] + self._head * self._counts[:, None]
        return Pattern(
            self._stacks,
            lines.flatten(),
            (cells[:, None] + member * self._longest).flatten(),
            mask,
            seen,
            offsets.flatten(),
            self._size,
        )

    def mask(self, lengths: Sequence[int], window: int | None) -> Tensor | None:
        """[B, M · bs], 0 where a row sees a token and -inf elsewhere; None where all are seen."""
        device = self._head.device
        begins = self._pairs.begins[self._starts]  # [B]
        stop = torch.tensor(lengths, dtype=torch.int64, device=device) - begins
        place = torch.arange(self._longest * self._size, device=device)
        seen = place < stop[:, None]
        if window is not None:
            seen &= place >= (stop - window)[:, None]
        if bool(seen.all()):
            return None
        return torch.zeros(seen.shape, device=device).masked_fill_(~seen, -math.inf)


def _by_sharers(pairs: BlockPairs) -> list[tuple[Tensor | None, int, Tensor | None]]:
    """Pairs by how many rows see their block: (indices of pairs, places, place of each pair).

    None for the indices means all; None for the places, that each block has one.
    """
    if pairs.exclusive:
        return [(None, 1, None)]
    _, which, sharers = torch.unique(pairs.blocks, return_inverse=True, return_counts=True)
    order = torch.argsort(which, stable=True)
    first = (sharers.cumsum(0) - sharers)[which[order]]
    nth = torch.empty_like(which)
    nth[order] = torch.arange(which.shape[0], device=which.device) - first
    found: list[tuple[Tensor | None, int, Tensor | None]] = []
    low, most = 0, int(sharers.max())
    places = 1
    while low < most:
        wanted = (sharers > low) & (sharers <= places)
        chosen = wanted[which].nonzero().flatten()
        if len(chosen):
            found.append((chosen, places, nth[chosen] if places > 1 else None))
        low, places = places, places * 2
    return found


def _locate(blocks: Tensor, places: int) -> tuple[Where, int, Tensor]:
    """Where the kernel reads `blocks` [n]: (a range or a list, its length U, each one's index)."""
    if places == 1:
        low, high = int(blocks.min()), int(blocks.max()) + 1
        if high - low <= DENSEST * len(blocks):
            return slice(low, high), high - low, blocks - low
        return blocks, len(blocks), torch.arange(len(blocks), device=blocks.device)
    distinct, local = torch.unique(blocks, return_inverse=True)
    low, high = int(distinct[0]), int(distinct[-1]) + 1
    if high - low == len(distinct):
        return slice(low, high), len(distinct), local
    return distinct, len(distinct), local
