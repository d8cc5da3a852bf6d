"""The tensors a model must have: their names here, their names in a file, their shapes.

Shapes: V vocabulary, H hidden, F intermediate, D head size; [output, input] for matrices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from engine.model.config import ModelConfig
from engine.model.errors import fault

Shape = tuple[int, ...]

GGUF_NAMES: Mapping[str, str] = {
    "embedding": "token_embd.weight",
    "final_norm": "output_norm.weight",
    "head": "output.weight",
    "attention_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
    "mlp_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
}
GGUF_LAYER = "blk.{}."

HUGGING_FACE_NAMES: Mapping[str, str] = {
    "embedding": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "head": "lm_head.weight",
    "attention_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}
HUGGING_FACE_LAYER = "model.layers.{}."


def expected_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Name -> shape of every tensor that a model of this config has, and of no other."""
    shapes: dict[str, Shape] = {
        "embedding": (config.vocabulary, config.hidden),
        "final_norm": (config.hidden,),
    }
    if not config.tied_head:
        shapes["head"] = (config.vocabulary, config.hidden)
    layer = dict(_layer_shapes(config))
    for index in range(config.layers):
        shapes |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    return shapes


def _layer_shapes(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    hidden, query, kv = config.hidden, config.query_width, config.kv_width
    yield "attention_norm", (hidden,)
    yield "q", (query, hidden)
    yield "k", (kv, hidden)
    yield "v", (kv, hidden)
    yield "o", (hidden, query)
    if config.qkv_bias:
        yield "q_bias", (query,)
        yield "k_bias", (kv,)
        yield "v_bias", (kv,)
    if config.qk_norm:
        yield "q_norm", (config.head_dim,)
        yield "k_norm", (config.head_dim,)
    yield "mlp_norm", (hidden,)
    yield "gate", (config.intermediate, hidden)
    yield "up", (config.intermediate, hidden)
    yield "down", (hidden, config.intermediate)


def file_name(name: str, names: Mapping[str, str], layer: str) -> str:
    """`layers.3.q` -> what the file calls it: `blk.3.attn_q.weight` with the GGUF names."""
    if not name.startswith("layers."):
        return names[name]
    _, index, part = name.split(".")
    return layer.format(index) + names[part]


def check_tensors(
    path: Path,
    expected: Mapping[str, Shape],
    found: Mapping[str, Shape],
    ignorable: frozenset[str],
) -> None:
    """Hold the shapes a file claims against those its config asks for, before reading any.

    A tensor that is not understood is an error too: leaving a bias out would change the model.

    Raises:
        ModelError: names the tensor, the shape expected and the shape found.
    """
    for name, shape in expected.items():
        if name not in found:
            raise fault(path, f"tensor {name!r} is missing; expected shape {list(shape)}")
        if tuple(found[name]) != shape:
            raise fault(
                path,
                f"tensor {name!r} has shape {list(found[name])}; expected {list(shape)}",
            )
    extra = sorted(name for name in found if name not in expected and name not in ignorable)
    if extra:
        raise fault(
            path,
            f"holds {len(extra)} tensors that this family of models does not have, the first "
            f"{extra[0]!r}; running without them would give wrong answers",
        )
