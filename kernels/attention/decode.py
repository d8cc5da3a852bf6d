"""Attention of one row a sequence in C: keys and values read where they lie, by all threads.

`decode.c` says how. torch's fused kernel works on tiles of rows, which a single row does not fill,
and wants keys side by side, padded to the longest sequence.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native
from kernels.attention.reference import paged_attention

SOURCE = Path(__file__).with_name("decode.c")

WIDTHS, WIDEST = 16, 256
"""What must divide a head's width, and the widest head."""

FORM = "native-decode"


def takes(width: int, dtype: torch.dtype) -> bool:
    """Whether heads of `width` numbers are attended here, in runs of `dtype`."""
    return width % WIDTHS == 0 and width <= WIDEST and _native(dtype) is not None


class Reach:
    """Which keys each of some rows sees: row b those from place `firsts[b]` to `ends[b]` of the
    groups `tables[b]`, in their order."""

    def __init__(
        self, tables: Iterable[Sequence[int]], firsts: Iterable[int], ends: Iterable[int]
    ) -> None:
        self.tables, self.bounds = array("q"), array("q")
        for table, first, end in zip(tables, firsts, ends, strict=True):
            self.bounds.extend((len(self.tables), first, end))
            self.tables.extend(table)

    @property
    def addresses(self) -> tuple[int, int]:
        """Of both, as C reads them."""
        return self.tables.buffer_info()[0], self.bounds.buffer_info()[0]


def decode_attention(query: Tensor, key: Tensor, value: Tensor, reach: Reach) -> Tensor:
    """softmax(q Kᵀ / sqrt(D)) V of one row a sequence, over keys where they lie.

    `query` [B, heads, D]; `key`, `value` [groups, kv, places, D] of the same strides, D innermost.
    Gives [B, heads · D].

    Raises:
        ValueError: a width or dtype that is not taken here, or vectors that lie otherwise.
    """
    batch, heads, width = query.shape
    _, kv_heads, places, _ = key.shape
    step, head, place, number = key.stride()
    function = _native(query.dtype) if query.device.type == "cpu" else None
    if function is None or width % WIDTHS or width > WIDEST:
        raise ValueError(f"heads of {width} {query.dtype} are not attended here; ask `takes`")
    if number != 1 or value.stride() != key.stride() or key.dtype != query.dtype:
        raise ValueError("keys and values lie alike, vectors side by side, in the queries' dtype")
    query = query.contiguous()
    threads = torch.get_num_threads()
    out = torch.empty(batch, heads * width, dtype=query.dtype)
    scratch = torch.empty(batch * heads * (width + threads * (width + 2)))
    function(
        query.data_ptr(),
        key.data_ptr(),
        value.data_ptr(),
        *reach.addresses,
        out.data_ptr(),
        scratch.data_ptr(),
        batch,
        heads,
        kv_heads,
        places,
        width,
        step,
        head,
        place,
        threads,
    )
    return out


@cache
def _native(dtype: torch.dtype) -> native.Function | None:
    """The function in C, where its result is right."""

    def right(function: native.Function) -> bool:
        """Two sequences over groups of 8, out of order: 70 tokens, and 13 of which 9 are seen."""
        query, pool = native.probe(2, 6, 32, dtype=dtype), native.probe(11, 2, 8, 32, dtype=dtype)
        values = pool.flip(2).contiguous()
        tables = ((3, 1, 10, 0, 7, 6, 2, 9, 5), (8, 4))
        reach = Reach(tables, (0, 4), (70, 13))
        out, scratch = torch.empty(2, 192, dtype=dtype), torch.empty(2 * 6 * (32 + 3 * 34))
        function(
            query.data_ptr(), pool.data_ptr(), values.data_ptr(), *reach.addresses, out.data_ptr(),
            scratch.data_ptr(), 2, 6, 2, 8, 32, *pool.stride()[:3], 3,
        )  # fmt: skip
        whole = paged_attention(query[:1], pool, values, tables[:1], (70,))
        windowed = paged_attention(query[1:], pool, values, tables[1:], (13,), window=9)
        return native.agrees(out, torch.cat((whole, windowed)))

    return native.tried(SOURCE, "decode_attention", "ppppppp" + "l" * 8 + "i", dtype, right)
