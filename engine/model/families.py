"""Which models can be read, and how a file's own words become a `ModelConfig`.

GGUF keys follow the GGUF specification; config.json keys follow transformers, whose defaults
stand in for what a file leaves out. A setting that would change the model's function and is not
known here is an error, never skipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from engine.model.config import Family, ModelConfig, RopeScaling
from engine.model.errors import fault
from engine.model.gguf_header import GGUFHeader
from engine.model.json_files import JSONObject, shown

GGUF_ARCHITECTURES: Mapping[str, Family] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}

HUGGING_FACE_ARCHITECTURES: Mapping[str, Family] = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}

MAX_LAYERS = 1_024
MAX_WIDTH = 2**24

# Scalars that other llama-like models multiply into their activations: 1 (or 0) leaves them out.
_GGUF_SCALES = (
    "attention.scale",
    "logit_scale",
    "embedding_scale",
    "residual_scale",
    "attn_logit_softcapping",
    "final_logit_softcapping",
)


def gguf_config(header: GGUFHeader) -> ModelConfig:
    """The config of a GGUF file, from its metadata and the names of its tensors.

    Raises:
        ModelError: an architecture or a setting that is not supported, or a number out of range.
    """
    path = header.path
    architecture = header.text("general.architecture")
    family = GGUF_ARCHITECTURES.get(architecture)
    if family is None:
        known = ", ".join(GGUF_ARCHITECTURES)
        raise fault(path, f"is of architecture {architecture!r}; supported: {known}")
    prefix = f"{architecture}."
    if header.integer(prefix + "expert_count", 0):
        raise fault(path, "is a mixture of experts; only dense models are supported")
    for key in _GGUF_SCALES:
        if header.number(prefix + key, 0.0) not in (0.0, 1.0):
            raise fault(path, f"sets {prefix + key}, which is not supported")
    hidden = header.integer(prefix + "embedding_length")
    heads = header.integer(prefix + "attention.head_count")
    head_dim = header.integer(prefix + "attention.key_length", hidden // max(heads, 1))
    for key in ("attention.value_length", "rope.dimension_count"):
        if header.integer(prefix + key, head_dim) != head_dim:
            found = header.integer(prefix + key)
            raise fault(
                path, f"{prefix + key} is {found} and the head size {head_dim}; they must agree"
            )
    if "token_embd.weight" not in header.tensors:
        raise fault(path, "tensor 'token_embd.weight' is missing")
    context = header.integer(prefix + "context_length")
    window = header.integer(prefix + "attention.sliding_window", 0)
    config = ModelConfig(
        family=family,
        layers=header.integer(prefix + "block_count"),
        hidden=hidden,
        heads=heads,
        kv_heads=header.integer(prefix + "attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate=header.integer(prefix + "feed_forward_length"),
        vocabulary=header.tensors["token_embd.weight"].shape[0],
        context=context,
        rope_base=header.number(prefix + "rope.freq_base", 10_000.0),
        norm_eps=_round_float32(header.number(prefix + "attention.layer_norm_rms_epsilon")),
        tied_head="output.weight" not in header.tensors,
        qkv_bias="blk.0.attn_q.bias" in header.tensors,
        qk_norm=family == "qwen3",
        sliding_window=window if 0 < window < context else None,
        rope_scaling=_gguf_linear_scaling(header, prefix),
    )
    return _checked(path, config)


def _gguf_linear_scaling(header: GGUFHeader, prefix: str) -> RopeScaling | None:
    kind = header.text(prefix + "rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind != "linear":
        raise fault(header.path, f"scales its rotary angles by {kind!r}; supported: none, linear")
    return RopeScaling("linear", header.number(prefix + "rope.scaling.factor"))


def folder_config(config: JSONObject) -> ModelConfig:
    """The config of a Hugging Face folder, from its config.json.

    Raises:
        ModelError: an architecture or a setting that is not supported, or a number out of range.
    """
    path = config.path
    family = _folder_family(config)
    if config.has("quantization_config"):
        raise fault(path, "holds weights quantised by another tool; use the unquantised model")
    activation = config.text("hidden_act", "silu")
    if activation != "silu":
        raise fault(path, f"uses the activation {activation!r}; supported: silu")
    for key in ("attention_bias", "mlp_bias"):
        if family != "qwen2" and config.flag(key, False):
            raise fault(path, f"sets {key}, which is supported for no {family} model")
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads")
    own_head_dim = 128 if family == "qwen3" else hidden // max(heads, 1)
    rope_base, rope_scaling = _folder_rope(config)
    return _checked(
        path,
        ModelConfig(
            family=family,
            layers=config.integer("num_hidden_layers"),
            hidden=hidden,
            heads=heads,
            kv_heads=config.integer("num_key_value_heads", heads if family == "llama" else None),
            head_dim=config.integer("head_dim", own_head_dim),
            intermediate=config.integer("intermediate_size"),
            vocabulary=config.integer("vocab_size"),
            context=config.integer("max_position_embeddings"),
            rope_base=rope_base,
            norm_eps=config.number("rms_norm_eps", 1e-6),
            tied_head=config.flag("tie_word_embeddings", False),
            qkv_bias=family == "qwen2",
            qk_norm=family == "qwen3",
            sliding_window=_folder_window(config, family),
            rope_scaling=rope_scaling,
        ),
    )


def _folder_family(config: JSONObject) -> Family:
    known = ", ".join(HUGGING_FACE_ARCHITECTURES)
    if config.has("architectures"):
        names = config.texts("architectures")
        for name in names:
            if name in HUGGING_FACE_ARCHITECTURES:
                return HUGGING_FACE_ARCHITECTURES[name]
        raise fault(config.path, f"is of architecture {', '.join(names)!r}; supported: {known}")
    kind = config.text("model_type")
    for family in HUGGING_FACE_ARCHITECTURES.values():
        if kind == family:
            return family
    raise fault(config.path, f"is of model type {kind!r}; supported: {known}")


def _folder_rope(config: JSONObject) -> tuple[float, RopeScaling | None]:
    """Base and scaling; transformers 5 writes one `rope_parameters`, earlier ones two keys."""
    base = config.number("rope_theta", 10_000.0)
    if config.number("partial_rotary_factor", 1.0) != 1.0:
        raise fault(config.path, "rotates only a part of each head, which is not supported")
    key = "rope_parameters" if config.has("rope_parameters") else "rope_scaling"
    if not config.has(key):
        return base, None
    rope = config.child(key)
    base = rope.number("rope_theta", base)
    if rope.number("partial_rotary_factor", 1.0) != 1.0:
        raise fault(config.path, "rotates only a part of each head, which is not supported")
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind == "default":
        return base, None
    if kind == "linear":
        return base, RopeScaling("linear", rope.number("factor"))
    if kind != "llama3":
        raise fault(
            config.path,
            f"scales its rotary angles by {kind!r}; supported: default, linear, llama3",
        )
    scaling = RopeScaling(
        kind="llama3",
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_context=rope.integer("original_max_position_embeddings"),
    )
    return base, scaling


def _folder_window(config: JSONObject, family: Family) -> int | None:
    """Tokens that a query sees back, itself included; None where it sees all.

    Mistral's own default is 4,096 where the key is absent; null there means no window. Qwen uses
    one only when told so, and then maybe for its later layers only, which is not supported.
    """
    if family == "llama":
        return None
    if family == "mistral":
        window = config.integer("sliding_window", 4_096) if _window_set(config) else None
    else:
        window = config.integer("sliding_window", 4_096)
        window = window if config.flag("use_sliding_window", False) else None
    if window is None or window >= config.integer("max_position_embeddings"):
        return None
    if config.has("layer_types"):
        kinds = set(config.texts("layer_types"))
    else:
        first = config.integer("max_window_layers", 28) if family != "mistral" else 0
        layers = config.integer("num_hidden_layers")
        kinds = {"sliding_attention"} if first == 0 else {"mixed" if first < layers else "full"}
    if kinds == {"sliding_attention"}:
        return window
    if kinds <= {"full", "full_attention"}:
        return None
    raise fault(config.path, "uses a sliding window in some layers only, which is not supported")


def _window_set(config: JSONObject) -> bool:
    return "sliding_window" not in config.values or config.has("sliding_window")


def _round_float32(value: float) -> float:
    """The short decimal a float32 was written from: 9.999999747378752e-06 -> 1e-05."""
    return float(f"{value:.7g}")


def _checked(path: Path, config: ModelConfig) -> ModelConfig:
    """Bounds that keep later arithmetic and the list of expected tensors small."""
    counts = {
        "layers": (config.layers, MAX_LAYERS),
        "hidden size": (config.hidden, MAX_WIDTH),
        "heads": (config.heads, MAX_WIDTH),
        "KV heads": (config.kv_heads, MAX_WIDTH),
        "head size": (config.head_dim, MAX_WIDTH),
        "intermediate size": (config.intermediate, MAX_WIDTH),
        "vocabulary": (config.vocabulary, MAX_WIDTH),
        "context": (config.context, 2**31),
    }
    for what, (value, most) in counts.items():
        if not 1 <= value <= most:
            raise fault(path, f"gives {value} for its {what}; 1 to {most} is legal")
    if config.sliding_window is not None and config.sliding_window < 1:
        raise fault(path, f"gives a sliding window of {config.sliding_window} tokens")
    if config.heads % config.kv_heads:
        raise fault(
            path,
            f"has {config.heads} query heads for {config.kv_heads} KV heads; it must be a multiple",
        )
    if config.head_dim % 2:
        raise fault(
            path, f"has heads of {config.head_dim} channels; rotary pairs need an even count"
        )
    scaling = config.rope_scaling
    numbers = {"rotary base": config.rope_base, "norm epsilon": config.norm_eps}
    if scaling is not None:
        numbers["rotary scaling factor"] = scaling.factor
        numbers["low frequency factor"] = scaling.low_freq_factor
        numbers["high frequency factor"] = scaling.high_freq_factor - scaling.low_freq_factor
        numbers["original context"] = scaling.original_context
    for what, number in numbers.items():
        if not math.isfinite(number) or number <= 0:
            raise fault(path, f"gives {shown(number)} for its {what}; it must be above zero")
    return config
