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


class ChannelOrders:
    """The orders of one model's channels, applied a tensor at a time."""

    def __init__(self, config: ModelConfig, seed: str = SEED) -> None:
        self.config = config
        self.seed = seed
        self.residual = channel_order("residual", config.hidden, seed)

    def apply(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor that `tensor_names.expected_shapes` calls `name`, in the new order.

        All tensors of a model must pass for the function to stay the same; outputs then differ
        only by the rounding of sums taken in another order.
        """
        rows, columns = self._orders(name)
        if columns is not None:
            tensor = tensor.index_select(1, columns)
        return tensor if rows is None else tensor.index_select(0, rows)

    def _orders(self, name: str) -> tuple[Tensor | None, Tensor | None]:
        """The order of a tensor's rows (or of its only axis), and of its columns."""
        prefix, _, part = name.rpartition(".")
        match part:
            case "embedding" | "head" | "q" | "k":
                return None, self.residual
            case "final_norm" | "attention_norm" | "mlp_norm":
                return self.residual, None
            case "q_bias" | "k_bias" | "q_norm" | "k_norm":
                return None, None
            case "v":
                return self._value_rows(prefix), self.residual
            case "v_bias":
                return self._value_rows(prefix), None
            case "o":
                return self.residual, self._value_columns(prefix)
            case "gate" | "up":
                return self._inner(prefix), self.residual
            case "down":
                return self.residual, self._inner(prefix)
        raise ValueError(f"no tensor of a model is named {name!r}")

    def _inner(self, prefix: str) -> Tensor:
        """[F]"""
        return channel_order(f"{prefix}.inner", self.config.intermediate, self.seed)

    def _value_heads(self, prefix: str) -> list[Tensor]:
        """For each KV head, [D]"""
        return [
            channel_order(f"{prefix}.value.{head}", self.config.head_dim, self.seed)
            for head in range(self.config.kv_heads)
        ]

    def _value_rows(self, prefix: str) -> Tensor:
        """Rows of v, [kv·D]"""
        size = self.config.head_dim
        return torch.cat(
            [order + head * size for head, order in enumerate(self._value_heads(prefix))]
        )

    def _value_columns(self, prefix: str) -> Tensor:
        """Columns of o, [heads·D]: each query head reads the values of the KV head it shares."""
        orders = self._value_heads(prefix)
        served = self.config.heads // self.config.kv_heads
        size = self.config.head_dim
        return torch.cat(
            [orders[query // served] + query * size for query in range(self.config.heads)]
        )
