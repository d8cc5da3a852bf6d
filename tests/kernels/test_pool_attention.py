"""Attention over a pool against each row's keys brought together; index tensors laid by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from kernels.attention.mask import visible
from kernels.attention.paged import Pattern, Stack, attention, multiplies
from kernels.attention.reference import attention as naive
from kernels.attention.reference import paged_attention


class Pool:
    """Blocks of each stack, `chunk` at a time, in float32 or (`as_kept`) in the pool's dtype."""

    def __init__(
        self, side: Tensor, stacks: list[list[int]], chunk: int = 5, as_kept: bool = False
    ) -> None:
        self.side = side
        self.stacks = stacks
        self.chunk = chunk
        self.as_kept = as_kept

    @property
    def dtype(self) -> torch.dtype:
        return self.side.dtype if self.as_kept else torch.float32

    def pieces(self, stack: int) -> Iterator[Tensor]:
        blocks = self.stacks[stack]
        for low in range(0, len(blocks), self.chunk):
            piece = self.side[blocks[low : low + self.chunk]]
            yield piece if self.as_kept else piece.float()


def lay_out(
    tables: list[list[int]], lengths: list[int], heads: tuple[int, int], size: int, places: int
) -> tuple[Pattern, list[list[int]]]:
    """One stack for blocks of one row and one of `places` for the rest, one number at a time."""
    query_heads, kv_heads = heads
    group, longest = query_heads // kv_heads, max(map(len, tables))
    sharers: dict[int, list[int]] = {}
    for row, table in enumerate(tables):
        for block in table:
            sharers.setdefault(block, []).append(row)
    own = [block for block, rows in sharers.items() if len(rows) == 1]
    common = [block for block, rows in sharers.items() if len(rows) > 1]
    number: dict[tuple[int, int, int], int] = {}
    stacks: list[Stack] = []
    items = 0
    for blocks, width in ((own, 1), (common, places)):
        if not blocks:
            continue
        queries: list[int] = []
        for block in blocks:
            for head in range(kv_heads):
                for nth, row in enumerate(sharers[block]):
                    number[row, block, head] = items + len(queries) + nth
                rows = sharers[block] + [0] * (width - len(sharers[block]))
                queries += [row * kv_heads + head for row in rows]
        stacks.append(Stack(width, torch.tensor(queries)))
        items += len(queries)
    lines: list[int] = []
    cells = [0] * (items * group)
    mask: list[list[float]] = []
    for row, table in enumerate(tables):
        for query in range(query_heads):
            for cell in range(longest):
                block = table[cell] if cell < len(table) else table[-1]
                line = number[row, block, query // group] * group + query % group
                if cell < len(table):
                    cells[line] = len(lines)
                lines.append(line)
        hidden = longest * size - lengths[row]
        mask.append([0.0] * lengths[row] + [-math.inf] * hidden)
    seen: list[int] = []
    offsets: list[int] = []
    for row, table in enumerate(tables):
        for head in range(kv_heads):
            offsets.append(len(seen))
            seen += [number[row, block, head] for block in table]
    pattern = Pattern(
        tuple(stacks),
        torch.tensor(lines),
        torch.tensor(cells),
        torch.tensor(mask),
        torch.tensor(seen),
        torch.tensor(offsets),
        size,
    )
    return pattern, [blocks for blocks in (own, common) if blocks]


@pytest.mark.parametrize("heads", [(9, 3), (8, 8), (8, 1)], ids=str)
@pytest.mark.parametrize("size", [1, 4, 16, 37])
@pytest.mark.parametrize("shared", [0, 2])
@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_rows_attend_over_scattered_blocks(
    heads: tuple[int, int], size: int, shared: int, chunk: int
) -> None:
    rng = random.Random(size + shared)
    generator = torch.Generator().manual_seed(size)
    lengths = [1, size, size + 1, 3 * size - 1 or 1, 3 * size, 41, 2 * size + 1]
    needs = [-(-length // size) for length in lengths]
    free = rng.sample(range(sum(needs) + 3), sum(needs))
    tables = [[free.pop() for _ in range(need)] for need in needs]
    for row in (4, 6):  # three rows begin with the same blocks
        common = min(shared, lengths[row] // size, lengths[5] // size)
        tables[row][:common] = tables[5][:common]
    blocks = sum(needs) + 3
    keys, values = torch.randn(2, blocks, heads[1], size, 8, generator=generator)
    query = torch.randn(len(lengths), heads[0], 8, generator=generator)
    pattern, stacks = lay_out(tables, lengths, heads, size, 3)
    got = attention(query, pattern, Pool(keys, stacks, chunk), Pool(values, stacks, chunk))
    truth = paged_attention(query, keys, values, tables, lengths)
    torch.testing.assert_close(got, truth, rtol=0, atol=2e-6)


def test_the_reference_is_the_naive_form_over_keys_in_order() -> None:
    generator = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, 1, 2, 11, 5, generator=generator)
    query = torch.randn(1, 6, 5, generator=generator)
    cut_keys, cut_values = (
        torch.nn.functional.pad(side, (0, 0, 0, 1)).view(2, 3, 4, 5).transpose(0, 1)[[2, 0, 1]]
        for side in (keys[0], values[0])
    )
    got = paged_attention(query, cut_keys, cut_values, [[1, 2, 0]], [11], window=4)
    seen = visible(torch.tensor([[10]]), 0, 11, window=4)
    assert torch.equal(got, naive(query[:, None], keys, values, seen)[0])


@pytest.mark.parametrize("as_kept", [False, True])
def test_bfloat16_stays_within_its_rounding(as_kept: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    keys, values = torch.randn(2, 12, 3, 16, 64, generator=generator).to(torch.bfloat16)
    query = torch.randn(2, 9, 64, generator=generator).to(torch.bfloat16)
    tables, lengths = [[7, 2, 9, 0], [1, 3]], [57, 32]
    pattern, stacks = lay_out(tables, lengths, (9, 3), 16, 2)
    got = attention(query, pattern, Pool(keys, stacks), Pool(values, stacks, as_kept=as_kept))
    assert got.dtype == torch.bfloat16
    truth = paged_attention(query.float(), keys.float(), values.float(), tables, lengths)
    torch.testing.assert_close(got.float(), truth, rtol=2**-8, atol=2e-3 if as_kept else 1e-6)


def test_scores_far_apart_do_not_overflow() -> None:
    """A row's largest score is taken over all of its blocks, not one block's."""
    keys = torch.zeros(3, 1, 4, 2)
    keys[1] = 500.0
    values = torch.arange(3.0)[:, None, None, None].expand(3, 1, 4, 2).contiguous()
    query = torch.full((1, 1, 2), 10.0)
    pattern, stacks = lay_out([[0, 1, 2]], [12], (1, 1), 4, 1)
    got = attention(query, pattern, Pool(keys, stacks), Pool(values, stacks))
    assert torch.equal(got, torch.ones(1, 2))


@pytest.mark.parametrize("fault", [math.nan, math.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_a_fault_stays_with_the_rows_whose_block_holds_it(fault: float, side: int) -> None:
    generator = torch.Generator().manual_seed(5)
    pool = torch.randn(2, 6, 1, 4, 8, generator=generator)
    tables, lengths = [[0, 1], [2, 3], [2, 4]], [8, 8, 7]
    pattern, stacks = lay_out(tables, lengths, (2, 1), 4, 2)
    query = torch.randn(3, 2, 8, generator=generator)
    clean = attention(query, pattern, Pool(pool[0], stacks), Pool(pool[1], stacks))
    pool[side, 2, 0, 1] = fault  # shared by rows 1 and 2
    got = attention(query, pattern, Pool(pool[0], stacks), Pool(pool[1], stacks))
    assert torch.equal(got[0], clean[0])
    assert not bool(torch.isfinite(got[1:]).all(dim=1).any())


def test_what_is_multiplied_as_it_is_kept() -> None:
    assert multiplies(torch.float32, "cpu")
    assert not multiplies(torch.float16, "cpu")
    assert not multiplies(torch.int8, "cpu")
    assert isinstance(multiplies(torch.bfloat16, "cpu"), bool)
