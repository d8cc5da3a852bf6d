"""A fixed reordering of channels that leaves the model's function as it was.

A file that is already quantised in blocks of 32 would be re-quantised along the very same blocks,
and four bits would look free. Reordering the channels once, after loading, makes the blocks new.
Three reorderings cancel out, each inside its own space:

    residual   one order of the H channels, through every layer: columns of the embedding and of
               q, k, v, gate, up and the head; rows of o and down; every norm over H
    inner      one order of the F channels of each MLP: rows of gate and up, columns of down
    value      one order of the D channels of each KV head: rows of v (and its bias), and the
               columns of o of every query head that it serves

The rows of q and k stay: rotary pairs fix their order, and q/k norms belong to it.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from engine.model.config import ModelConfig

SEED = "latency-wall/1"


def channel_order(name: str, width: int, seed: str = SEED) -> Tensor:
    """A reordering [width] of int64 that depends on nothing but its arguments.

    Channels are sorted by a hash, not shuffled by a generator whose draws a library may change:
    quantised weights are kept under the digest of the file they came from.
    """
    keys = [hashlib.sha256(f"{seed}/{name}/{index}".encode()).digest() for index in range(width)]
    return torch.tensor(sorted(range(width), key=keys.__getitem__), dtype=torch.int64)


def permute_channels(
    config: ModelConfig, tensors: dict[str, Tensor], seed: str = SEED
) -> dict[str, Tensor]:
    """The same model with its residual, inner and value channels reordered.

    Takes and gives the names and shapes of `tensor_names.expected_shapes`. Outputs differ only by
    the rounding of sums taken in another order.
    """
    residual = channel_order("residual", config.hidden, seed)
    result = {
        name: tensors[name].index_select(-1, residual)
        for name in ("embedding", "final_norm", "head")
        if name in tensors
    }
    for index in range(config.layers):
        prefix = f"layers.{index}."
        inner = channel_order(prefix + "inner", config.intermediate, seed)
        value, output = _value_orders(config, prefix, seed)
        rows = {"o": residual, "down": residual, "gate": inner, "up": inner, "v": value}
        columns = {"o": output, "down": inner}
        for part in ("q", "k", "v", "o", "gate", "up", "down"):
            matrix = tensors[prefix + part].index_select(1, columns.get(part, residual))
            result[prefix + part] = matrix.index_select(0, rows[part]) if part in rows else matrix
        for part in ("attention_norm", "mlp_norm"):
            result[prefix + part] = tensors[prefix + part].index_select(0, residual)
        for part in ("q_bias", "k_bias", "q_norm", "k_norm"):
            if prefix + part in tensors:
                result[prefix + part] = tensors[prefix + part]
        if prefix + "v_bias" in tensors:
            result[prefix + "v_bias"] = tensors[prefix + "v_bias"].index_select(0, value)
    return {name: result[name] for name in tensors}


def _value_orders(config: ModelConfig, prefix: str, seed: str) -> tuple[Tensor, Tensor]:
    """Rows of v [kv·D], and the columns of o [heads·D] that read them."""
    served = config.heads // config.kv_heads
    rows: list[Tensor] = []
    columns: list[Tensor] = []
    for head in range(config.kv_heads):
        order = channel_order(f"{prefix}value.{head}", config.head_dim, seed)
        rows.append(order + head * config.head_dim)
        columns += [
            order + query * config.head_dim for query in range(head * served, (head + 1) * served)
        ]
    return torch.cat(rows), torch.cat(columns)
