"""The network against transformers: every family and option, and the default model itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from engine.config import EngineConfig, RunConfig, ScheduleConfig, WorkloadConfig
from engine.model.llama import Llama
from engine.model.loader import load_model
from engine.model.store import ModelSource
from engine.run import scoring
from engine.run.engine import Engine, SamplingParams
from engine.run.plain_cache import plain_cache
from engine.run.runner import Runner

SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
    "rope_theta": 10_000.0,
}
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama tied, one KV head": (
        "Llama",
        {"tie_word_embeddings": True, "num_key_value_heads": 1},
    ),
    "llama without GQA": ("Llama", {"num_key_value_heads": 6}),
    "llama, llama3 scaling": ("Llama", {"rope_parameters": LLAMA3}),
    "llama, linear scaling": ("Llama", {"rope_parameters": LINEAR}),
    "qwen2, biases": ("Qwen2", {}),
    "qwen3, q/k norm, explicit head_dim": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "mistral, window 24": ("Mistral", {"sliding_window": 24, "head_dim": 8}),
    "mistral, no window": ("Mistral", {"sliding_window": None}),
}
TEXT = 90
EXACT = 1e-3
"""Largest difference of a float32 logit that rounding explains."""


def make(folder: Path, family: str, tokenizer: dict[str, object]) -> tuple[Any, ModelSource]:
    """A random model of the family, saved as a Hugging Face folder: transformers' and its path."""
    import transformers

    name, options = FAMILIES[family]
    config = getattr(transformers, f"{name}Config")(**{**SIZES, **options})
    torch.manual_seed(11)
    peer = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in peer.parameters():  # its own initialisation makes all but nothing of x
            parameter.copy_(torch.randn_like(parameter) * 3 / parameter.shape[-1] ** 0.5)
    peer.save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(msgspec.json.encode(tokenizer))
    return peer, ModelSource("folder", folder, family)


def text(length: int, vocabulary: int = 256, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocabulary, (length,), generator=generator).tolist()


def peer_logits(peer: Any, ids: list[int]) -> Tensor:
    with torch.inference_mode():
        scores: Tensor = peer(torch.tensor([ids])).logits[0].float()
    return scores


def decoded_logits(model: Llama, ids: list[int], prompt: int) -> Tensor:
    """Scores of a text whose first `prompt` tokens run at once and the rest one at a time."""
    chunks = [ids[:prompt], *([token] for token in ids[prompt:])]
    runner = Runner(model, plain_cache(model, len(ids)))
    runner.cache.admit(0, ids, len(ids))
    rows = []
    with torch.inference_mode():
        for tokens in chunks:
            phase = "prefill" if len(tokens) > 1 else "decode"
            batch = runner.layout.of_tokens(phase, (0,), [tokens])
            hidden = model.forward(batch.input_ids, batch.positions, batch.context)
            rows.append(model.logits(hidden))
    return torch.cat(rows)


@pytest.mark.oracle
@pytest.mark.parametrize("family", FAMILIES)
def test_float32_logits_are_transformers(
    family: str, tmp_path: Path, tiny_tokenizer_json: dict[str, object]
) -> None:
    peer, source = make(tmp_path, family, tiny_tokenizer_json)
    loaded = load_model(source)
    model = Llama(loaded.config, loaded.tensors, "float32")
    ids = text(TEXT)
    truth = peer_logits(peer, ids)
    assert float(truth.std()) > 0.5  # else any small logits would pass
    for chunk in (TEXT, 32, 7):
        got = torch.cat(list(scoring.score_chunks(model, ids, chunk)))
        assert float((got - truth).abs().max()) < EXACT, f"chunk {chunk}"
    stepwise = decoded_logits(model, ids, prompt=TEXT // 2)
    assert float((stepwise - truth).abs().max()) < EXACT


@pytest.mark.oracle
def test_a_window_changes_what_a_long_text_says(
    tmp_path: Path, tiny_tokenizer_json: dict[str, object]
) -> None:
    """The window's oracle would prove nothing if the window hid nothing."""
    peer, source = make(tmp_path, "mistral, window 24", tiny_tokenizer_json)
    loaded = load_model(source)
    open_config = msgspec.structs.replace(loaded.config, sliding_window=None)
    ids, truth = text(TEXT), peer_logits(peer, text(TEXT))
    open_eyed = scoring.logits(Llama(open_config, loaded.tensors, "float32"), ids)
    assert float((open_eyed[:24] - truth[:24]).abs().max()) < EXACT
    assert float((open_eyed[30:] - truth[30:]).abs().max()) > 0.1


@pytest.mark.oracle
@pytest.mark.parametrize("family", ["llama", "qwen2, biases", "mistral, window 24"])
def test_bfloat16_stays_as_near_the_truth_as_transformers(
    family: str, tmp_path: Path, tiny_tokenizer_json: dict[str, object]
) -> None:
    peer, source = make(tmp_path, family, tiny_tokenizer_json)
    loaded = load_model(source)
    ids = text(TEXT)
    truth = peer_logits(peer, ids)
    got = scoring.logits(Llama(loaded.config, loaded.tensors, "bfloat16"), ids)
    rough = peer_logits(peer.to(torch.bfloat16), ids)

    def root_mean_square(error: Tensor) -> float:
        return float(error.pow(2).mean().sqrt())

    assert root_mean_square(got - truth) < 1.25 * root_mean_square(rough - truth)


def test_a_missing_tensor_is_named(tmp_path: Path, tiny_tokenizer_json: dict[str, object]) -> None:
    pytest.importorskip("transformers")
    _, source = make(tmp_path, "llama", tiny_tokenizer_json)
    loaded = load_model(source)
    loaded.tensors.pop("layers.1.down")
    with pytest.raises(ValueError, match=r"no tensor named 'layers\.1\.down'"):
        Llama(loaded.config, loaded.tensors, "float32")


@cache
def default_pair(path: Path) -> tuple[Any, Any]:
    """The default model: transformers' (from the same GGUF) and what our loader reads."""
    import transformers

    peer = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    return peer.eval(), load_model(ModelSource("gguf", path, "default"))


PROMPTS = (
    "The capital of France is Paris, and it is known for its museums and its long river.",
    "def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n",
    "延迟之壁 12345 + 67890 = 80235, isn't it? 🌿 Ça va très bien!",
)


@pytest.fixture
def peer_and_loaded(default_model_path: Path) -> tuple[Any, Any]:
    return default_pair(default_model_path)


@pytest.mark.oracle
@pytest.mark.model
def test_the_default_models_logits_are_transformers(peer_and_loaded: tuple[Any, Any]) -> None:
    """Whole, in chunks, and step by step, on prose, code and mixed scripts."""
    peer, loaded = peer_and_loaded
    model = Llama(loaded.config, loaded.tensors, "float32")
    for prompt in PROMPTS:
        ids = loaded.tokenizer.encode(prompt)
        truth = peer_logits(peer, ids)
        for chunk in (len(ids), 11):
            got = torch.cat(list(scoring.score_chunks(model, ids, chunk)))
            assert float((got - truth).abs().max()) < EXACT
        stepwise = decoded_logits(model, ids, prompt=len(ids) - 3)
        assert float((stepwise - truth).abs().max()) < EXACT


@pytest.mark.oracle
@pytest.mark.model
def test_greedy_answers_are_transformers_generate(
    peer_and_loaded: tuple[Any, Any], agrees: Callable[..., None]
) -> None:
    """Three prompts of different lengths in one batch against transformers one by one."""
    peer, loaded = peer_and_loaded
    length = 12
    model = Llama(loaded.config, loaded.tensors, "float32")
    config = EngineConfig(WorkloadConfig(64, length), ScheduleConfig(3), RunConfig("float32"))
    engine = Engine(model, config)
    params = SamplingParams(max_tokens=length, ignore_eos=True)
    prompts = {
        engine.add_request(ids, params): ids for ids in map(loaded.tokenizer.encode, PROMPTS)
    }
    outputs: dict[int, list[int]] = {request: [] for request in prompts}
    while engine.has_work:
        for request, tokens in engine.step().tokens.items():
            outputs[request].extend(tokens)
    for request, ids in prompts.items():
        given = torch.tensor([ids])
        with torch.inference_mode():
            whole = peer.generate(
                given,
                attention_mask=torch.ones_like(given),
                max_new_tokens=length,
                min_new_tokens=length,
                do_sample=False,
            )
        agrees(
            outputs[request], whole[0, len(ids) :].tolist(), peer_logits(peer, whole[0].tolist())
        )


@pytest.fixture
def agrees() -> Callable[..., None]:
    """Equal tokens, excusing a first difference only where the peer itself is all but undecided."""

    def check(got: list[int], expected: list[int], scores: Tensor) -> None:
        assert len(got) == len(expected)
        for place, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
            if ours == theirs:
                continue
            row = scores[scores.shape[0] - len(expected) - 1 + place]
            margin = float(row.max() - row[ours])
            assert margin < EXACT, f"token {place}: {ours}, not {theirs}; margin {margin:.4f}"
            return  # past a near-tie the texts are different texts

    return check
