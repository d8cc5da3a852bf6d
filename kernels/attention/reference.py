"""Scaled dot-product attention as mathematics: the whole score matrix, in float32."""

from __future__ import annotations

import math

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
