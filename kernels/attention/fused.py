"""Attention through torch's fused kernel: scores stay in cache, tile by tile.

Keys and values are never repeated for grouped-query attention. Two ways to say so to the kernel,
measured on two Zen 4 cores, torch 2.13, 9 query heads on 3 KV heads of 64, µs a call:

    one query row               batch 1, 512 keys     batch 8, 512 keys
    float32  heads | folded        38 | 46              232 | 245
    bfloat16 heads | folded       281 | 52             2021 | 282

*heads* gives the kernel 9 query heads and `enable_gqa`; *folded* makes the 3 query heads of a KV
head three rows of one head: [B, kv, group, D] x [B, kv, S, D]. A bfloat16 kernel works on tiles of
rows and wastes one on a single row; float32 prefers nine independent tasks. Many query rows
(prefill) fill the tiles anyway and go as heads.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kernels.attention.decode import Reach, decode_attention, takes


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> Tensor:
    """softmax(Q Kᵀ / sqrt(D) + mask) V for grouped queries.

    `query` [B, L, heads, D]; `key`, `value` [B, kv, S, D], any strides; `mask` [B, 1, L, S]
    additive in the dtype of `query`, or None; `causal` means that L = S and row i sees keys 0..i.
    Gives [B · L, heads · D].
    """
    batch, length, heads, width = query.shape
    if length == 1 and mask is None and query.device.type == "cpu" and takes(width, query.dtype):
        keys = key.shape[2]
        reach = Reach(((row,) for row in range(batch)), (0,) * batch, (keys,) * batch)
        return decode_attention(query[:, 0], key, value, reach)
    if length == 1 and query.dtype != torch.float32:
        return _folded(query, key, value, mask)
    attended = functional.scaled_dot_product_attention(
        query.transpose(1, 2), key, value, attn_mask=mask, is_causal=causal, enable_gqa=True
    )
    return attended.transpose(1, 2).reshape(batch * length, heads * width)


def _folded(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """One query row a sequence: a KV head's query heads become rows of one head.

    The mask's [B, 1, 1, S] row serves every row of the fold.
    """
    batch, _, heads, width = query.shape
    kv_heads = key.shape[1]
    folded = query.view(batch, kv_heads, heads // kv_heads, width)
    attended = functional.scaled_dot_product_attention(folded, key, value, attn_mask=mask)
    return attended.reshape(batch, heads * width)


def backend(heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: str) -> str:
    """The kernel torch will choose for a decode step of these shapes: "flash", "math", ...

    Asked of torch's own chooser, so that a fall to the slow form is seen on every result.
    """
    query = torch.zeros(1, heads, 1, head_dim, dtype=dtype, device=device)
    key = torch.zeros(1, kv_heads, 4, head_dim, dtype=dtype, device=device)
    if not hasattr(torch, "_fused_sdp_choice"):
        return "unknown"
    choice = torch._fused_sdp_choice(query, key, key, enable_gqa=heads != kv_heads)
    names = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}
    return names.get(int(choice), "unknown")
