"""A Llama-family decoder: Llama, Qwen2, Qwen3 and Mistral are one network with options.

    x = embedding[ids]
    x = x + O · attention(rope(norm(x) · QKV))          for every layer
    x = x + Down · (silu(norm(x) · Gate) * (norm(x) · Up))
    logits = norm(x) · Head

`forward` takes (input_ids, positions, context): how keys and values are kept, which rows belong to
one sequence and what they may see is the context's affair. Weights are cast and laid out once, when
the model is made; q, k, v are one matrix and so are gate and up: fewer calls, longer reads.

The residual stream `x` is float32 in every precision: some 60 sums run through it, and its largest
channels are hundreds of times the rest. One row of it costs nothing beside the weights; in bfloat16
it would lift the KL divergence to the float32 model from 0.0006 to 0.0010 nats a token (800 tokens
of licence prose, the default model) and change greedy answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.model.config import ModelConfig
from engine.run.batch import AttentionContext
from kernels.attention import fused
from kernels.linear.dispatch import Linear, resolve
from kernels.linear.sharpen import ROUNDING, sharpen
from kernels.norm.rms_norm import RMSNorm
from kernels.rope import rotation
from kernels.rope.frequencies import inverse_frequencies, scale_linear, scale_llama3
from kernels.rope.rotation import Rotation

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention with rotary positions. `qkv` is [(heads + 2 kv) · D, H]."""

    layer: int
    heads: int
    kv_heads: int
    qkv: Linear
    qk_norm: RMSNorm | None
    o: Linear

    def __call__(self, x: Tensor, turn: Rotation, context: AttentionContext) -> Tensor:
        """[T, H] -> [T, H]."""
        rotated = self.heads + self.kv_heads
        vectors = self.qkv(x).view(x.shape[0], rotated + self.kv_heads, -1)  # [T, heads + 2 kv, D]
        qk, value = vectors.split_with_sizes((rotated, self.kv_heads), dim=1)
        if self.qk_norm is not None:
            qk = self.qk_norm(qk)
        query, key = turn(qk).split_with_sizes((self.heads, self.kv_heads), dim=1)
        return self.o(context.attend(self.layer, query, key, value))


@dataclass(frozen=True)
class GatedMLP:
    """SwiGLU (Shazeer, 2020). `gate_up` is [2 F, H], `down` [H, F]."""

    gate_up: Linear
    down: Linear

    def __call__(self, x: Tensor) -> Tensor:
        """[T, H] -> [T, H]."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate).mul_(up))


@dataclass(frozen=True)
class Layer:
    attention_norm: RMSNorm
    attention: Attention
    mlp_norm: RMSNorm
    mlp: GatedMLP

    def __call__(self, x: Tensor, turn: Rotation, context: AttentionContext) -> Tensor:
        """Adds to the residual stream `x` [T, H] float32 in place."""
        x += self.attention(self.attention_norm(x), turn, context)
        x += self.mlp(self.mlp_norm(x))
        return x


class Llama:
    """The network with its weights in `precision`, ready to run on `device`.

    `tensors` are named as the loader names them (`layers.0.q`, ...). A tied head is a second copy
    of the embedding where the machine has a packed form: look-up needs rows, the product a packed
    matrix. Norm weights and rotary frequencies are float32 in every precision.

    Raises:
        ValueError: an unknown precision, or a tensor that is missing.
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: Mapping[str, Tensor],
        precision: str,
        device: str = "cpu",
    ) -> None:
        if precision not in DTYPES:
            raise ValueError(f"no precision is named {precision!r}; legal: {', '.join(DTYPES)}")
        self.config = config
        self.precision = precision
        self.dtype = DTYPES[precision]
        self.device = device
        with torch.inference_mode():
            weights = _Weights(tensors, self.dtype, device)
            self.embedding = weights.matrix("embedding")  # [V, H]
            self.frequencies = _frequencies(config).to(device)  # [D / 2]
            self.layers = tuple(_layer(config, weights, i) for i in range(config.layers))
            self.final_norm = weights.norm("final_norm", config.norm_eps)
            head = self.embedding if config.tied_head else weights.matrix("head")
            self.head: Linear = resolve(head)
            self._sharpens = config.tied_head and self.dtype in ROUNDING

    def forward(self, input_ids: Tensor, positions: Tensor, context: AttentionContext) -> Tensor:
        """The residual stream after the last layer: [T] and [T] -> [T, H], not yet normalised."""
        hidden = self.embedding[input_ids].to(torch.float32)
        turn = Rotation.at(positions, self.frequencies)
        for layer in self.layers:
            hidden = layer(hidden, turn, context)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 scores of every next token, for the rows that need them: [R, H] -> [R, V].

        In a low precision the largest scores come out tied by rounding; where the head's rows are
        at hand (they are the embedding's, when tied) those few are computed again.
        """
        x = self.final_norm(hidden)
        scores = self.head(x).to(torch.float32)
        return sharpen(scores, x, self.embedding) if self._sharpens else scores

    def layer_outputs(
        self, input_ids: Tensor, positions: Tensor, context: AttentionContext
    ) -> Iterator[Tensor]:
        """`forward` layer by layer, to look for where a value went wrong: yields [T, H] each."""
        hidden = self.embedding[input_ids].to(torch.float32)
        turn = Rotation.at(positions, self.frequencies)
        for layer in self.layers:
            hidden = layer(hidden, turn, context)
            yield hidden

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Every weight matrix of the layers."""
        return tuple(
            matrix
            for layer in self.layers
            for matrix in (
                layer.attention.qkv,
                layer.attention.o,
                layer.mlp.gate_up,
                layer.mlp.down,
            )
        )

    @property
    def weight_bytes(self) -> int:
        """Bytes of every weight held, second copies and the packed layout's padding included."""
        norms = [n for layer in self.layers for n in (layer.attention_norm, layer.mlp_norm)]
        norms += [n for layer in self.layers if (n := layer.attention.qk_norm) is not None]
        matrices = sum(matrix.nbytes for matrix in self.linears)
        vectors = sum(norm.nbytes for norm in norms) + self.final_norm.nbytes
        shared = getattr(self.head, "weight", None) is self.embedding
        head = 0 if shared else self.head.nbytes
        return matrices + vectors + self.embedding.nbytes + head

    @property
    def kernel_path(self) -> dict[str, str]:
        """The kernels that run, by operation; more than one form of a kind is named in full."""
        config = self.config
        forms = sorted({matrix.form for matrix in self.linears})
        backend = fused.backend(
            config.heads, config.kv_heads, config.head_dim, self.dtype, self.device
        )
        return {
            "linear": f"{' + '.join(forms)} {self.precision}",
            "attention": f"sdpa-{backend} {self.precision}",
            "norm": RMSNorm.form,
            "rope": rotation.FORM,
            "head": f"{self.head.form} {self.precision}" + ", sharpened" * self._sharpens,
        }


@dataclass(frozen=True)
class _Weights:
    """The loader's tensors, cast and moved as each is asked for."""

    tensors: Mapping[str, Tensor]
    dtype: torch.dtype
    device: str

    def matrix(self, *names: str) -> Tensor:
        """One weight, or several stacked along their output rows."""
        parts = [self._find(name).to(device=self.device, dtype=self.dtype) for name in names]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def norm(self, name: str, eps: float) -> RMSNorm:
        """From the float32 stream to rows in the matrices' precision."""
        return RMSNorm(self.vector(name), eps, self.dtype)

    def vector(self, name: str) -> Tensor:
        return self._find(name).to(device=self.device, dtype=torch.float32)

    def _find(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise ValueError(f"the model has no tensor named {name!r}")
        return self.tensors[name]


def _layer(config: ModelConfig, weights: _Weights, index: int) -> Layer:
    def name(part: str) -> str:
        return f"layers.{index}.{part}"

    qkv = weights.matrix(name("q"), name("k"), name("v"))
    bias = None
    if config.qkv_bias:
        bias = weights.matrix(name("q_bias"), name("k_bias"), name("v_bias"))
    return Layer(
        attention_norm=weights.norm(name("attention_norm"), config.norm_eps),
        attention=Attention(
            layer=index,
            heads=config.heads,
            kv_heads=config.kv_heads,
            qkv=resolve(qkv, bias),
            qk_norm=_qk_norm(config, weights, index) if config.qk_norm else None,
            o=resolve(weights.matrix(name("o"))),
        ),
        mlp_norm=weights.norm(name("mlp_norm"), config.norm_eps),
        mlp=GatedMLP(
            gate_up=resolve(weights.matrix(name("gate"), name("up"))),
            down=resolve(weights.matrix(name("down"))),
        ),
    )


def _qk_norm(config: ModelConfig, weights: _Weights, index: int) -> RMSNorm:
    """Qwen3 normalises each head's query and key: one gain a head, [heads + kv, D]."""
    query = weights.vector(f"layers.{index}.q_norm").expand(config.heads, -1)
    key = weights.vector(f"layers.{index}.k_norm").expand(config.kv_heads, -1)
    return RMSNorm(torch.cat((query, key)), config.norm_eps)


def _frequencies(config: ModelConfig) -> Tensor:
    frequencies = inverse_frequencies(config.head_dim, config.rope_base)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return scale_linear(frequencies, scaling.factor)
    return scale_llama3(
        frequencies,
        scaling.factor,
        scaling.low_freq_factor,
        scaling.high_freq_factor,
        scaling.original_context,
    )
