"""A Llama-family decoder: Llama, Qwen2, Qwen3 and Mistral are one network with options.

    x = embedding[ids]
    x = x + O · attention(rope(norm(x) · QKV))          for every layer
    x = x + Down · (silu(norm(x) · Gate) * (norm(x) · Up))
    logits = norm(x) · Head

`forward` takes (input_ids, positions, context): how keys and values are kept, which rows belong to
one sequence and what they may see is the context's affair. Weights are cast and laid out once, when
the model is made (`engine.model.weights`); q, k, v are one matrix and so are gate and up: fewer
calls, longer reads.

The residual stream `x` is float32 in every precision: some 60 sums run through it, and its largest
channels are hundreds of times the rest. One row of it costs nothing beside the weights; in bfloat16
it would lift the KL divergence to the float32 model from 0.0006 to 0.0010 nats a token (800 tokens
of licence prose, the default model) and change greedy answers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping

import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.layer import Layer, make_layer
from engine.model.rotary import rotary_frequencies
from engine.model.weights import DenseTable, Table, Weights, bare, crossing
from engine.quant.grid import GridWeight
from engine.quant.weights import QuantisedWeights
from engine.run.batch import AttentionContext
from engine.weight_format import FUSED, JOINED, NATIVE, ROW_MAJOR, WIDENED, Scheme
from kernels.attention import fused
from kernels.gate.swiglu import is_native
from kernels.linear.compiled import CompiledLinear
from kernels.linear.dispatch import Linear, reads_rows, widens
from kernels.linear.low_bit_forms import available_low_bit_forms
from kernels.linear.sharpen import ROUNDING, sharpen
from kernels.rope import rotation
from kernels.rope.rotation import Rotation

DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class Llama:
    """The network with its weights in `precision`, ready to run on `device`.

    `tensors` are named as the loader names them (`layers.0.q`, ...). A tied head is a second copy
    of the embedding where the machine has a packed form: look-up needs rows, the product a packed
    matrix. Norm weights and rotary frequencies are float32 in every precision.

    Matrices in `quantised` are kept in few bits, laid out for one of the low-bit `forms` (found by
    trying, unless said); a quantised embedding is kept once, for look-up and a tied head. A pass of
    more than `crossover` rows multiplies by weights made dense again; 0 never does.

    `check` is called before every layer is laid out and may raise to stop.

    Raises:
        ValueError: an unknown precision, a tensor that is missing, or a grid of another shape.
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: Mapping[str, Tensor],
        precision: str,
        device: str = "cpu",
        quantised: QuantisedWeights | None = None,
        crossover: int = 0,
        forms: Collection[str] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        if precision not in DTYPES:
            raise ValueError(f"no precision is named {precision!r}; legal: {', '.join(DTYPES)}")
        self.config = config
        self.precision = precision
        self.dtype = DTYPES[precision]
        self.device = device
        self.crossover = 0
        self.schemes: Mapping[str, Scheme] = {}
        self.low_bit_forms: tuple[str, ...] = ()
        grids: Mapping[str, GridWeight] = {}
        if quantised is not None:
            tensors, grids = {**tensors, **quantised.tensors}, quantised.grids
            self.schemes = {name: grid.scheme for name, grid in grids.items()}
            found = available_low_bit_forms(self.dtype) if forms is None else forms
            self.low_bit_forms = tuple(found)
        elif widens(self.dtype):
            self.low_bit_forms = (WIDENED,)
        if device == "cpu" and reads_rows(self.dtype) and ROW_MAJOR not in self.low_bit_forms:
            self.low_bit_forms += (ROW_MAJOR,)
        if device == "cpu" and is_native(self.dtype) and NATIVE not in self.low_bit_forms:
            self.low_bit_forms += (NATIVE,)
        with torch.inference_mode():
            weights = Weights(tensors, self.dtype, device, grids, self.low_bit_forms)
            self.frequencies = rotary_frequencies(config).to(device)  # [D / 2]
            layers: list[Layer] = []
            for index in range(config.layers):
                check()
                layers.append(make_layer(config, weights, index))
            self.layers = tuple(layers)
            self.final_norm = weights.norm("final_norm", config.norm_eps)
            self.embedding, self.head, rows = _ends(config, weights)
        every = (*self.linears, self.head)
        if any(isinstance(matrix, CompiledLinear) for matrix in every):
            self.low_bit_forms += (FUSED,)
        if any(layer.before or layer.after for layer in self.layers):
            self.low_bit_forms += (JOINED,)
        self._head_rows = rows if self.dtype in ROUNDING else None
        self._cross(crossover)

    def with_crossover(self, rows: int) -> Llama:
        """The same network, all its weights shared, with another crossover."""
        twin = copy.copy(self)
        twin._cross(rows)
        return twin

    def first_layers(self, count: int) -> Llama:
        """The same network after its first `count` layers: all weights shared.

        Raises:
            ValueError: fewer than one layer, or more than there are.
        """
        if not 1 <= count <= len(self.layers):
            raise ValueError(f"the first {count} of {len(self.layers)} layers; at least 1")
        twin = copy.copy(self)
        twin.layers = self.layers[:count]
        return twin

    def forward(self, input_ids: Tensor, positions: Tensor, context: AttentionContext) -> Tensor:
        """The residual stream after the last layer: [T] and [T] -> [T, H], not yet normalised."""
        hidden = self.embedding.rows(input_ids).to(torch.float32)
        turn = Rotation.at(positions, self.frequencies)
        for layer in self.layers:
            hidden = layer(hidden, turn, context)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 scores of every next token, for the rows that need them: [R, H] -> [R, V].

        In a low precision the largest scores come out tied by rounding; where the head's rows are
        at hand (they are the embedding's, when tied, and can be made of a quantised head's codes)
        those few are computed again.
        """
        x = self.final_norm(hidden)
        scores = self.head(x).to(torch.float32)
        return scores if self._head_rows is None else sharpen(scores, x, self._head_rows.rows)

    def layer_outputs(
        self, input_ids: Tensor, positions: Tensor, context: AttentionContext
    ) -> Iterator[Tensor]:
        """`forward` layer by layer, to look for where a value went wrong: yields [T, H] each."""
        hidden = self.embedding.rows(input_ids).to(torch.float32)
        turn = Rotation.at(positions, self.frequencies)
        for layer in self.layers:
            hidden = layer(hidden, turn, context)
            yield hidden

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Every weight matrix of the layers."""
        return tuple(matrix for layer in self.layers for matrix in layer.linears)

    @property
    def weight_bytes(self) -> int:
        """Bytes of every weight held, second copies and the packed layout's padding included."""
        norms = [n for layer in self.layers for n in (layer.attention_norm, layer.mlp_norm)]
        norms += [n for layer in self.layers if (n := layer.attention.qk_norm) is not None]
        matrices = sum(matrix.nbytes for matrix in self.linears)
        vectors = sum(norm.nbytes for norm in norms) + self.final_norm.nbytes
        head = 0 if self._shares_head else self.head.nbytes
        return matrices + vectors + self.embedding.nbytes + head

    @property
    def kernel_path(self) -> dict[str, str]:
        """The kernels that run, by operation; more than one form of a kind is named in full."""
        config = self.config
        backend = fused.backend(
            config.heads, config.kv_heads, config.head_dim, self.dtype, self.device
        )
        return {
            "linear": self._named(*self.linears) + self._joined,
            "attention": f"sdpa-{backend} {self.precision}",
            "norm": self.final_norm.form,
            "rope": rotation.form(config.head_dim, self.dtype),
            "head": self._named(self.head) + ", sharpened" * (self._head_rows is not None),
        }

    def _named(self, *linears: Linear) -> str:
        """Each form once, then the precision, then the crossover where it changes any of them."""
        forms = sorted({bare(matrix).form for matrix in linears})
        crosses = any(bare(matrix) is not matrix for matrix in linears)
        dense = f", dense above {self.crossover} rows" * crosses
        return f"{' + '.join(forms)} {self.precision}{dense}"

    @property
    def _joined(self) -> str:
        """Up to how many rows layers run by halves, where they do."""
        rows = sorted({layer.few for layer in self.layers if layer.before or layer.after})
        return f", layers joined to {' or '.join(map(str, rows))} rows" if rows else ""

    @property
    def _shares_head(self) -> bool:
        """Whether look-up and head read one copy of one matrix."""
        head, table = bare(self.head), self.embedding
        if isinstance(table, DenseTable):
            return getattr(head, "weight", None) is table.weight
        return self.config.tied_head

    def _cross(self, rows: int) -> None:
        def change(name: str, linear: Linear) -> Linear:
            return crossing(linear, self.schemes.get(name), rows)

        self.crossover = rows
        self.layers = tuple(
            layer.with_linears(change, f"layers.{index}.")
            for index, layer in enumerate(self.layers)
        )
        self.head = change("embedding" if self.config.tied_head else "head", self.head)


def _ends(config: ModelConfig, weights: Weights) -> tuple[Table, Linear, Table | None]:
    """The embedding, the head, and where rows of the head are at hand, if anywhere."""
    if config.tied_head:
        table, head = weights.embedding()
        return table, head, table
    return weights.table(), *weights.head()
