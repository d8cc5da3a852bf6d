"""Attention of one row a sequence in C: keys and values read once, widened once, by all threads.

`decode.c` says how. torch's fused kernel works on tiles of rows, which a single row does not fill.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels import native
from kernels.attention.reference import attention as reference

SOURCE = Path(__file__).with_name("decode.c")

WIDTHS, WIDEST = 16, 256
"""What must divide a head's width, and the widest head."""

FORM = "native-decode"


def takes(width: int, dtype: torch.dtype) -> bool:
    """Whether heads of `width` numbers are attended here, in runs of `dtype`."""
    return width % WIDTHS == 0 and width <= WIDEST and _native(dtype) is not None


def decode_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor | None:
    """softmax(q Kᵀ / sqrt(D)) V of one row a sequence, which sees every key.

    `query` [B, heads, D]; `key`, `value` [B, kv, S, D]. Gives [B, heads · D]; None where
    this form does not take them.
    """
    batch, heads, width = query.shape
    row, head, place, number = key.stride()
    if number != 1 or value.stride() != key.stride() or query.device.type != "cpu":
        return None
    if width % WIDTHS or width > WIDEST:
        return None
    function = _native(query.dtype)
    if function is None:
        return None
    query = query.contiguous()
    threads = torch.get_num_threads()
    out = torch.empty(batch, heads * width, dtype=query.dtype)
    scratch = torch.empty(batch * heads * (width + threads * (width + 2)))
    function(
        query.data_ptr(),
        key.data_ptr(),
        value.data_ptr(),
        out.data_ptr(),
        scratch.data_ptr(),
        batch,
        heads,
        key.shape[1],
        key.shape[2],
        width,
        row,
        head,
        place,
        threads,
    )
    return out


@cache
def _native(dtype: torch.dtype) -> native.Function | None:
    """The function in C, where its result is right."""

    def right(function: native.Function) -> bool:
        query, keys = native.probe(2, 6, 32, dtype=dtype), native.probe(2, 2, 70, 32, dtype=dtype)
        values = keys.flip(2).contiguous()
        out, scratch = torch.empty(2, 192, dtype=dtype), torch.empty(2 * 6 * (32 + 3 * 34))
        function(
            query.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr(),
            scratch.data_ptr(), 2, 6, 2, 70, 32, *keys.stride()[:3], 3,
        )  # fmt: skip
        seen = torch.ones(2, 1, 70, dtype=torch.bool)
        return native.agrees(out, reference(query[:, None], keys, values, seen)[:, 0])

    return native.tried(SOURCE, "decode_attention", "ppppp" + "l" * 8 + "i", dtype, right)
