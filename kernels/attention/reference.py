"""Scaled dot-product attention as mathematics: the whole score matrix, in float32."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def attention(query: Tensor, key: Tensor, value: Tensor, visible: Tensor) -> Tensor:
    """softmax(Q Kᵀ / sqrt(D)) V, each key head serving heads / kv query heads.

    `query` [B, L, heads, D]; `key`, `value` [B, kv, S, D]; `visible` [B, L, S] is true where a
    query may look, and every query sees at least one key. Gives [B, L, heads · D].
    """
    heads, kv_heads = query.shape[2], key.shape[1]
    group = heads // kv_heads
    q = query.to(torch.float32).transpose(1, 2)  # [B, heads, L, D]
    k = key.to(torch.float32).repeat_interleave(group, dim=1)  # [B, heads, S, D]
    v = value.to(torch.float32).repeat_interleave(group, dim=1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(query.shape[-1])  # [B, heads, L, S]
    scores = scores.masked_fill(~visible[:, None], -math.inf)
    attended = torch.softmax(scores, dim=-1) @ v
    return attended.transpose(1, 2).flatten(2).to(query.dtype)


def paged_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Sequence[Sequence[int]],
    lengths: Sequence[int],
    window: int | None = None,
) -> Tensor:
    """One query a row over a block pool: each row's blocks are put side by side, then attended.

    `query` [B, heads, D]; `keys`, `values` [blocks, kv, bs, D]; row b holds `lengths[b]` tokens in
    the blocks `tables[b]` and sees the last `window` of them. Gives [B, heads · D].
    """
    rows: list[Tensor] = []
    for q, table, length in zip(query, tables, lengths, strict=True):
        key, value = (
            torch.cat([pool[block] for block in table], dim=1)[None, :, :length]
            for pool in (keys, values)
        )
        visible = torch.arange(length) >= (0 if window is None else length - window)
        rows.append(attention(q[None, None], key, value, visible[None, None])[0])
    return torch.cat(rows)
