"""Scales moved from activations into weights, exactly: the layer's function stays what it was.

A matrix multiplies by what comes before it, and a scale a channel can stand on either side:
W x = (W diag(s)) (x / s). Dividing x costs nothing where whatever made it is linear in a tensor of
its own, a channel a number:

    norm    y = norm(x) · g         q, k, v (or gate, up) share s; g becomes g / s
    inner   y = silu(gate) * up     down takes s; the rows of up become rows / s
    value   y = P · v               o takes s; the rows of v and its bias become rows / s

A value channel of a KV head is read by every query head the KV head serves, so a scale for each
column of o exists only where heads == kv_heads: where heads are grouped, o is skipped.
Source: Xiao et al., SmoothQuant, 2022; Lin et al., AWQ, 2023.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from engine.model.config import ModelConfig

Pair = Literal["attention_norm", "value", "mlp_norm", "inner"]
"""What the divisors go into: the norm before q, k and v; v; the norm before gate and up; up."""


@dataclass(frozen=True)
class Seam:
    """Where one scale can be folded. `before` are tensors whose rows (or numbers) are divided,
    `after` those whose columns are multiplied; `matrix` is `after` as the engine stacks it."""

    pair: Pair
    matrix: str
    before: tuple[str, ...]
    after: tuple[str, ...]


def seams(model: ModelConfig, matrices: Collection[str]) -> tuple[Seam, ...]:
    """Every place in a layer of this model where a scale can go, in the order of the network.

    `matrices` are those that are quantised (qkv, o, gate_up, down): a seam is for their sake, and
    changes none but them and small tensors, since a matrix kept full would have to be kept anew.
    Folding across the value or inner seam rescales rows of v or up that an earlier fold gave
    columns: neither fold undoes the other.
    """
    bias = ("v_bias",) if model.qkv_bias else ()
    found = (
        Seam("attention_norm", "qkv", ("attention_norm",), ("q", "k", "v")),
        Seam("value", "o", ("v", *bias), ("o",)),
        Seam("mlp_norm", "gate_up", ("mlp_norm",), ("gate", "up")),
        Seam("inner", "down", ("up",), ("down",)),
    )
    fed_by = {"value": "qkv", "inner": "gate_up"}
    return tuple(
        seam
        for seam in found
        if seam.matrix in matrices
        and fed_by.get(seam.pair, seam.matrix) in matrices
        and not (seam.pair == "value" and model.heads != model.kv_heads)
    )


def fold(layer: Mapping[str, Tensor], seam: Seam, scale: Tensor) -> dict[str, Tensor]:
    """The layer's tensors, by their names in it, with `scale` [K] moved across the seam.

    Raises:
        ValueError: a scale that is not one positive finite number a channel.
    """
    width = layer[seam.after[0]].shape[1]
    if scale.shape != (width,):
        raise ValueError(f"a scale of shape {list(scale.shape)} for {width} channels")
    if not bool(((scale > 0) & torch.isfinite(scale)).all()):
        raise ValueError("a scale must be positive and finite in every channel")
    folded = dict(layer)
    for name in seam.before:
        tensor = layer[name]
        folded[name] = tensor / (scale if tensor.dim() == 1 else scale[:, None])
    for name in seam.after:
        folded[name] = layer[name] * scale
    return folded
