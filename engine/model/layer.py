"""One layer of the network: attention and a gated MLP, each added to the residual stream.

A few rows take the halves around attention in a call each, where their matrices are compiled:
`kernels.block`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.weights import Weights, bare, crossover
from engine.quant.weights import STACKS
from engine.run.batch import AttentionContext
from kernels.block.few_rows import (
    AfterAttention,
    BeforeAttention,
    after_attention,
    before_attention,
)
from kernels.gate.swiglu import swiglu
from kernels.linear.dispatch import Linear
from kernels.native import FEW_ROWS
from kernels.norm.rms_norm import RMSNorm
from kernels.residual.add import add
from kernels.rope.rotation import Rotation


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention with rotary positions, heads of `width` numbers. `qkv` is
    [(heads + 2 kv) · D, H]."""

    layer: int
    heads: int
    kv_heads: int
    width: int
    qkv: Linear
    qk_norm: RMSNorm | None
    o: Linear

    @property
    def turned(self) -> int:
        """Heads of queries and keys."""
        return self.heads + self.kv_heads

    def vectors(self, x: Tensor, turn: Rotation) -> tuple[Tensor, Tensor]:
        """[T, H] -> queries and keys, normed and turned [T, heads + kv, D]; values [T, kv, D]."""
        vectors = self.qkv(x).view(x.shape[0], self.turned + self.kv_heads, self.width)
        qk, value = vectors.split_with_sizes((self.turned, self.kv_heads), dim=1)
        return turn(qk if self.qk_norm is None else self.qk_norm(qk)), value

    def attend(self, turned: Tensor, value: Tensor, context: AttentionContext) -> Tensor:
        """What `vectors` gives -> [T, heads · D]."""
        query, key = turned.split_with_sizes((self.heads, self.kv_heads), dim=1)
        return context.attend(self.layer, query, key, value)


@dataclass(frozen=True)
class GatedMLP:
    """SwiGLU (Shazeer, 2020). `gate_up` is [2 F, H], `down` [H, F]."""

    gate_up: Linear
    down: Linear

    def __call__(self, x: Tensor) -> Tensor:
        """[T, H] -> [T, H]."""
        return self.down(swiglu(self.gate_up(x)))


@dataclass(frozen=True)
class Layer:
    """`before` and `after` stand for what is around attention, up to `few` rows."""

    attention_norm: RMSNorm
    attention: Attention
    mlp_norm: RMSNorm
    mlp: GatedMLP
    before: BeforeAttention | None = None
    after: AfterAttention | None = None
    few: int = 0

    def __call__(self, x: Tensor, turn: Rotation, context: AttentionContext) -> Tensor:
        """Adds to the residual stream `x` [T, H] float32 in place."""
        few = x.shape[0] <= self.few
        if few and self.after is not None:
            self.after(self._attend(x, turn, context, few), x)
        else:
            add(x, self.attention.o(self._attend(x, turn, context, few)))
            add(x, self.mlp(self.mlp_norm(x)))
        return x

    def _attend(self, x: Tensor, turn: Rotation, context: AttentionContext, few: bool) -> Tensor:
        """[T, H] -> [T, heads · D]."""
        if few and self.before is not None:
            return self.attention.attend(*self.before(x, turn), context)
        vectors = self.attention.vectors(self.attention_norm(x), turn)
        return self.attention.attend(*vectors, context)

    @property
    def linears(self) -> tuple[Linear, ...]:
        return (self.attention.qkv, self.attention.o, self.mlp.gate_up, self.mlp.down)

    def with_linears(self, change: Callable[[str, Linear], Linear], prefix: str) -> Layer:
        """The same layer with every weight matrix changed, known by `prefix` and its own name."""

        def changed(name: str, linear: Linear) -> Linear:
            return change(prefix + name, linear)

        qkv, o = changed("qkv", self.attention.qkv), changed("o", self.attention.o)
        gate_up, down = changed("gate_up", self.mlp.gate_up), changed("down", self.mlp.down)
        attention = replace(self.attention, qkv=qkv, o=o)
        return replace(self, attention=attention, mlp=GatedMLP(gate_up, down)).joined()

    def joined(self) -> Layer:
        """The same layer with the halves that its matrices allow, and rows up to which none of
        these is made dense."""
        attention, before = self.attention, None
        if attention.qk_norm is None:
            before = before_attention(
                self.attention_norm, bare(attention.qkv), attention.turned, attention.width
            )
        rest = (attention.o, self.mlp.gate_up, self.mlp.down)
        after = after_attention(self.mlp_norm, *map(bare, rest))
        few = min((FEW_ROWS, *(crossover(one) or FEW_ROWS for one in self.linears)))
        return replace(self, before=before, after=after, few=few)


def make_layer(config: ModelConfig, weights: Weights, index: int) -> Layer:
    """Layer `index`, of the weights' tensors and grids."""

    def name(part: str) -> str:
        return f"layers.{index}.{part}"

    def linear(matrix: str, bias: Tensor | None = None) -> Linear:
        return weights.linear(name(matrix), tuple(map(name, STACKS[matrix])), bias)

    bias = None
    if config.qkv_bias:
        bias = weights.bias(name("q_bias"), name("k_bias"), name("v_bias"))
    return Layer(
        attention_norm=weights.norm(name("attention_norm"), config.norm_eps),
        attention=Attention(
            layer=index,
            heads=config.heads,
            kv_heads=config.kv_heads,
            width=config.head_dim,
            qkv=linear("qkv", bias),
            qk_norm=_qk_norm(config, weights, index) if config.qk_norm else None,
            o=linear("o"),
        ),
        mlp_norm=weights.norm(name("mlp_norm"), config.norm_eps),
        mlp=GatedMLP(
            gate_up=linear("gate_up"),
            down=linear("down"),
        ),
    ).joined()


def _qk_norm(config: ModelConfig, weights: Weights, index: int) -> RMSNorm:
    """Qwen3 normalises each head's query and key: one gain a head, [heads + kv, D]."""
    query = weights.vector(f"layers.{index}.q_norm").expand(config.heads, -1)
    key = weights.vector(f"layers.{index}.k_norm").expand(config.kv_heads, -1)
    return RMSNorm(torch.cat((query, key)), config.norm_eps)
