"""Hugging Face folders of every family load as transformers wrote them; bad ones are named."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from engine.model.errors import ModelError
from engine.model.families import folder_config
from engine.model.json_files import JSONObject, read_object
from engine.model.layout import inspect_folder
from engine.model.loader import load_model
from engine.model.safetensors_header import read_header
from engine.model.store import ModelSource, add_model
from engine.model.tensor_names import HUGGING_FACE_LAYER, HUGGING_FACE_NAMES, file_name

pytestmark = pytest.mark.usefixtures("own_cache")

SIZES = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 258,
    "max_position_embeddings": 256,
    "bos_token_id": 256,
    "eos_token_id": 257,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CASES: Mapping[str, tuple[str, dict[str, object]]] = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-3": ("Llama", {"rope_parameters": LLAMA3_ROPE, "head_dim": 16}),
    "llama-linear": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "qwen2": ("Qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "qwen3": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {"sliding_window": 32}),
    "mistral-open": ("Mistral", {"sliding_window": None}),
}


@pytest.fixture
def make_folder(tmp_path: Path, tiny_tokenizer_json: dict[str, object]) -> Callable[..., Path]:
    """A small, randomly filled model, saved by transformers itself."""

    def make(case: str, dtype: torch.dtype = torch.float32, **save: object) -> Path:
        import transformers

        family, changes = CASES[case]
        config = getattr(transformers, f"{family}Config")(**{**SIZES, **changes})
        torch.manual_seed(3)
        model = getattr(transformers, f"{family}ForCausalLM")(config).to(dtype)
        folder = tmp_path / case
        model.save_pretrained(folder, **save)
        (folder / "tokenizer.json").write_text(json.dumps(tiny_tokenizer_json))
        return folder

    return make


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_tensors_and_config_equal_transformers(case: str, make_folder: Callable[..., Path]) -> None:
    from transformers import AutoModelForCausalLM

    folder = make_folder(case)
    model = load_model(ModelSource("folder", folder, case))
    theirs = AutoModelForCausalLM.from_pretrained(folder)
    state, config = theirs.state_dict(), theirs.config
    for name, tensor in model.tensors.items():
        stored = file_name(name, HUGGING_FACE_NAMES, HUGGING_FACE_LAYER)
        assert torch.equal(tensor, state[stored]), name
    tied = {"lm_head.weight"} if model.config.tied_head else set()
    assert len(model.tensors) == len(state) - len(tied)
    ours = model.config
    assert (ours.family, ours.layers, ours.hidden) == (config.model_type, 2, 48)
    assert (ours.heads, ours.kv_heads) == (6, 2)
    assert ours.head_dim == (getattr(config, "head_dim", None) or 8)
    assert ours.tied_head == config.tie_word_embeddings
    assert ours.rope_base == config.rope_parameters["rope_theta"]
    assert ours.norm_eps == config.rms_norm_eps
    assert ours.sliding_window == getattr(config, "sliding_window", None)
    kind = config.rope_parameters["rope_type"]
    assert (ours.rope_scaling.kind if ours.rope_scaling else "default") == kind
    if ours.rope_scaling is not None:
        assert ours.rope_scaling.factor == config.rope_parameters["factor"]
    assert model.tokenizer.eos_ids == {257}
    assert not model.report.permuted


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_saved_type_is_kept(dtype: torch.dtype, make_folder: Callable[..., Path]) -> None:
    model = load_model(ModelSource("folder", make_folder("llama", dtype), "llama"))
    assert {tensor.dtype for tensor in model.tensors.values()} == {dtype}


@pytest.mark.oracle
def test_shards_hold_the_same_model(make_folder: Callable[..., Path]) -> None:
    whole = load_model(ModelSource("folder", make_folder("llama"), "llama"))
    folder = make_folder("llama", max_shard_size="60KB")
    (folder / "model.safetensors").unlink()
    assert len(list(folder.glob("*.safetensors"))) > 2
    shards = load_model(ModelSource("folder", folder, "llama"))
    assert list(shards.tensors) == list(whole.tensors)
    for name, tensor in whole.tensors.items():
        assert torch.equal(tensor, shards.tensors[name])
    assert shards.digest != whole.digest
    assert add_model(folder).name == "llama"


@pytest.mark.oracle
def test_digest_follows_every_file_that_counts(make_folder: Callable[..., Path]) -> None:
    folder = make_folder("llama")

    def digest() -> str:
        return load_model(ModelSource("folder", folder, "llama")).digest

    first = digest()
    assert digest() == first
    (folder / "README.md").write_text("not read")
    assert digest() == first
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert digest() != first


@pytest.fixture
def folder(make_folder: Callable[..., Path]) -> Path:
    return make_folder("llama")


def edit(path: Path, **changes: object) -> None:
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not ...}))


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "GPT2LMHeadModel.*LlamaForCausalLM.*Qwen3"),
        ({"architectures": ..., "model_type": "mamba"}, "'mamba'"),
        ({"hidden_size": ...}, "'hidden_size' is missing"),
        ({"hidden_size": "48"}, "'hidden_size' should be a whole number"),
        ({"hidden_size": True}, "'hidden_size' should be a whole number"),
        ({"hidden_size": 64}, r"embed_tokens.*\[258, 48\].*expected \[258, 64\]"),
        ({"num_hidden_layers": 3}, r"layers\.2\..*missing"),
        ({"num_hidden_layers": 1}, r"tensors that this family .* 'model\.layers\.1"),
        ({"num_hidden_layers": 10**12}, "layers"),
        ({"num_key_value_heads": 4}, "multiple"),
        ({"num_attention_heads": 0}, "heads"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"bits": 4}}, "quantised"),
        ({"rms_norm_eps": -1.0}, "epsilon"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "yarn"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rope_parameters.factor.*missing"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 0.0}}, "factor"),
        ({"rope_parameters": [1]}, "object"),
        ({"partial_rotary_factor": 0.5}, "part of each head"),
        ({"vocab_size": 200}, r"embed_tokens"),
    ],
)
def test_configs_that_cannot_be_run(folder: Path, changes: dict[str, object], words: str) -> None:
    edit(folder / "config.json", **changes)
    with pytest.raises(ModelError, match=words):
        load_model(ModelSource("folder", folder, "llama"))


@pytest.mark.oracle
@pytest.mark.parametrize(
    "values",
    [
        {
            "rope_theta": 5e5,
            "rope_scaling": {k: v for k, v in LLAMA3_ROPE.items() if k != "rope_theta"},
        },
        {"rope_theta": 1e4, "rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_theta": 1e6, "rope_scaling": None},
        {},
    ],
    ids=["llama3", "linear", "base", "nothing"],
)
def test_older_rope_keys_mean_what_transformers_takes_them_for(values: dict[str, object]) -> None:
    from transformers import LlamaConfig

    config = LlamaConfig(**SIZES, **json.loads(json.dumps(values)))
    raw = {**SIZES, "architectures": ["LlamaForCausalLM"], **values}
    ours = folder_config(JSONObject(Path("config.json"), raw))
    assert ours.rope_base == config.rope_parameters["rope_theta"]
    scaling = ours.rope_scaling
    assert (scaling.kind if scaling else "default") == config.rope_parameters["rope_type"]
    if scaling is not None:
        assert scaling.factor == config.rope_parameters["factor"]


def qwen2(**values: object) -> JSONObject:
    raw = {**SIZES, "num_hidden_layers": 4, "architectures": ["Qwen2ForCausalLM"], **values}
    return JSONObject(Path("config.json"), raw)


def test_sliding_windows_of_qwen() -> None:
    on: dict[str, object] = {"use_sliding_window": True, "sliding_window": 32}
    assert folder_config(qwen2(sliding_window=32)).sliding_window is None
    assert folder_config(qwen2(**on, max_window_layers=0)).sliding_window == 32
    assert folder_config(qwen2(**on, max_window_layers=4)).sliding_window is None
    assert folder_config(qwen2(**on | {"sliding_window": 4_096})).sliding_window is None
    for mixed in (
        {"max_window_layers": 2},
        {"layer_types": ["full_attention", "sliding_attention"] * 2},
    ):
        with pytest.raises(ModelError, match="some layers only"):
            folder_config(qwen2(**on, **mixed))


def test_mistral_has_a_window_unless_told_otherwise() -> None:
    raw = {**SIZES, "architectures": ["MistralForCausalLM"], "max_position_embeddings": 32_768}
    assert folder_config(JSONObject(Path("c"), raw)).sliding_window == 4_096
    assert (
        folder_config(JSONObject(Path("c"), raw | {"sliding_window": None})).sliding_window is None
    )
    with pytest.raises(ModelError, match="num_key_value_heads"):
        folder_config(JSONObject(Path("c"), {k: v for k, v in raw.items() if "key_value" not in k}))


def safetensors(entries: object, data: bytes = b"\0" * 64, length: int | None = None) -> bytes:
    raw = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(
    dtype: object = "F32", shape: object = (4,), offsets: object = (0, 16)
) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_header_is_read_with_its_metadata_left_out(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(
        safetensors(
            {"__metadata__": {"format": "pt"}, "t": entry(), "s": entry("BF16", [], [16, 18])}
        )
    )
    found = read_header(path)
    assert {name: (t.dtype, t.shape) for name, t in found.items()} == {
        "t": ("F32", (4,)),
        "s": ("BF16", ()),
    }


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "cut short"),
        (b"\x10\0\0", "cut short"),
        (safetensors({"t": entry()}, length=2**60), "cut short"),
        (safetensors({"t": entry()}, length=2**63), "cut short"),
        (safetensors(b"{"), "not a list of tensors"),
        (safetensors(b"[" * 50_000), "not a list of tensors"),
        (safetensors(b"\xff\xfe"), "not a list of tensors"),
        (safetensors({"t": 5}), "not a list of tensors"),
        (safetensors({"t": {"dtype": "F32"}}), "not a list of tensors"),
        (safetensors({"t": entry(shape=[[1]])}), "not a list of tensors"),
        (safetensors({"bad": entry("I8", [16])}), "'bad' has type 'I8'.*F32, F16, BF16"),
        (safetensors({"bad": entry(shape=[-4])}), "'bad' has shape"),
        (safetensors({"bad": entry(shape=[1] * 9)}), "'bad' has shape"),
        (safetensors({"bad": entry(shape=[2**62, 4])}), "'bad'.*needs"),
        (safetensors({"bad": entry(offsets=[0, 2**60])}), "'bad' lies at"),
        (safetensors({"bad": entry(offsets=[-16, 0])}), "'bad' lies at"),
        (safetensors({"bad": entry(offsets=[32, 16])}), "'bad' lies at"),
        (safetensors({"bad": entry(offsets=[60, 76])}), "'bad' lies at"),
        (safetensors({"bad": entry(offsets=[0, 12])}), "'bad'.*needs 16 bytes and is given 12"),
        (safetensors({"a": entry(), "b": entry(offsets=[8, 24])}), "'a' and 'b' overlap"),
    ],
)
def test_headers_that_cannot_be_true(tmp_path: Path, raw: bytes, words: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw)
    with pytest.raises(ModelError, match=rf"model\.safetensors.*{words}"):
        read_header(path)


@pytest.mark.oracle
def test_files_cut_short_are_refused_before_they_are_read(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for cut in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(ModelError, match="cut short"):
            inspect_folder(folder)


@pytest.mark.oracle
@pytest.mark.parametrize(
    "shard",
    [
        "../model.safetensors",
        "/etc/passwd",
        "sub/x.safetensors",
        "..\\x.safetensors",
        ".x.safetensors",
        5,
        "x.bin",
        "C:x.safetensors",
    ],
)
def test_shards_outside_the_folder_are_refused(folder: Path, shard: object) -> None:
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    index = {"metadata": {}, "weight_map": {"model.norm.weight": shard}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="same folder"):
        inspect_folder(folder)


@pytest.mark.oracle
def test_indexes_that_are_wrong(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    index = folder / "model.safetensors.index.json"
    for weight_map, words in (
        ({"model.norm.weight": "gone.safetensors"}, r"gone\.safetensors.*missing"),
        ({"not.there": "a.safetensors"}, r"a\.safetensors.*lacks tensor 'not\.there'"),
        ({"model.norm.weight": "a.safetensors"}, r"embed_tokens.*missing"),
        ([], "weight_map"),
    ):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(ModelError, match=words):
            inspect_folder(folder)


@pytest.mark.oracle
def test_pickles_are_never_opened(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="neither model.safetensors"):
        inspect_folder(folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n")
    with pytest.raises(ModelError, match=r"pytorch_model\.bin.*pickle.*any code"):
        inspect_folder(folder)


@pytest.mark.oracle
def test_tokenizer_larger_than_the_embedding(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append(tokenizer["added_tokens"][1] | {"id": 258, "content": "<x>"})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelError, match="259 tokens.*258"):
        load_model(ModelSource("folder", folder, "llama"))


def test_json_files_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with pytest.raises(ModelError, match="is missing"):
        read_object(path)
    path.mkdir()
    with pytest.raises(ModelError, match="not a regular file"):
        read_object(path)
    path.rmdir()
    for content, words in (
        ("x" * 101, "longer than 100 bytes"),
        ("[]", "not the JSON object"),
        ('{"a": ', "not the JSON object"),
        ('{"a":' * 20, "not the JSON object"),
    ):
        path.write_text(content)
        with pytest.raises(ModelError, match=words):
            read_object(path, most=100)
    path.write_text('{"a":' * 200_000)
    with pytest.raises(ModelError, match="too deep"):
        read_object(path)
