"""transformers' `generate` on the same weights, as a peer to run beside: only where installed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.llama import DTYPES

NAME = "transformers"
_CONFIGS = {
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "mistral": ("MistralConfig", "MistralForCausalLM"),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"),
}
_LAYER_NAMES = {
    "attention_norm": "input_layernorm.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}

PeerRun = Callable[[Sequence[int], int], tuple[float, float]]
"""(prompt, output tokens) -> (seconds to the first token, mean seconds of each token after it)."""


def missing(config: ModelConfig) -> str:
    """Why there is no peer for this model here; "" where there is one."""
    if find_spec("transformers") is None:
        return "transformers is not installed"
    if config.rope_scaling is not None:
        return "the peer is not set up for scaled rotary positions"
    return ""


def build_peer(config: ModelConfig, tensors: Mapping[str, Tensor], precision: str) -> Any:
    """transformers' model of this shape with these weights, ready to run.

    Raises:
        ValueError: the weights do not fit its shape.
    """
    import transformers

    made, built = _CONFIGS[config.family]
    shape = getattr(transformers, made)(
        hidden_size=config.hidden,
        intermediate_size=config.intermediate,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        head_dim=config.head_dim,
        vocab_size=config.vocabulary,
        max_position_embeddings=config.context,
        rms_norm_eps=config.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_base},
        tie_word_embeddings=config.tied_head,
        sliding_window=config.sliding_window,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model: Any = getattr(transformers, built)(shape)
    found = model.load_state_dict(_renamed(tensors), strict=False)
    absent = [name for name in found.missing_keys if name != "lm_head.weight"]
    if absent or found.unexpected_keys:
        raise ValueError(f"the peer's weights do not fit: {absent} {found.unexpected_keys}")
    return model.to(DTYPES[precision]).eval()


def load_peer(config: ModelConfig, tensors: Mapping[str, Tensor], precision: str) -> PeerRun:
    """The peer's `generate`: greedy, batch 1, output length fixed. Raises as `build_peer`."""
    model = build_peer(config, tensors, precision)

    def run(prompt: Sequence[int], output: int) -> tuple[float, float]:
        heard = _Moments()
        ids = torch.tensor([list(prompt)])
        with torch.inference_mode():
            start = time.perf_counter()
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=output,
                min_new_tokens=output,
                do_sample=False,
                use_cache=True,
                streamer=heard,
            )
        first, last = heard.times[1], heard.times[output]
        return first - start, (last - first) / (output - 1)

    return run


class _Moments:
    """A streamer that notes the time of the prompt and then of every token."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: object) -> None:
        self.times.append(time.perf_counter())

    def end(self) -> None:
        """Nothing is left to note."""


def _renamed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    outer = {
        "embedding": "model.embed_tokens.weight",
        "final_norm": "model.norm.weight",
        "head": "lm_head.weight",
    }
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name in outer:
            renamed[outer[name]] = tensor
        else:
            _, layer, part = name.split(".")
            renamed[f"model.layers.{layer}.{_LAYER_NAMES[part]}"] = tensor
    if "lm_head.weight" not in renamed:
        renamed["lm_head.weight"] = tensors["embedding"]
    return renamed
