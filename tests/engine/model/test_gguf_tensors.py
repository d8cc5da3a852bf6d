"""Weights from a GGUF file: dequantised right, in half-split order, complete and of right shape."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from engine.model.errors import ModelError
from engine.model.gguf_tensors import iterate_gguf_tensors
from engine.model.layout import inspect_gguf, llama3_divisors
from engine.model.loader import load_model
from engine.model.store import ModelSource
from engine.model.tensor_names import HUGGING_FACE_LAYER, HUGGING_FACE_NAMES, file_name

HEADS, KV_HEADS, HEAD_DIM, HIDDEN = 4, 2, 16, 64
Kind = gguf.GGMLQuantizationType


def half(raw: bytes) -> float:
    return float(struct.unpack("<e", raw)[0])


def naive_q4_0(block: bytes) -> list[float]:
    """18 bytes: a scale, then 16 bytes whose low nibbles are weights 0-15 and high ones 16-31."""
    scale, packed = half(block[:2]), block[2:]
    return [scale * ((byte & 15) - 8) for byte in packed] + [
        scale * ((byte >> 4) - 8) for byte in packed
    ]


def naive_q4_1(block: bytes) -> list[float]:
    """20 bytes: a scale and a least value, then nibbles as in Q4_0."""
    scale, least, packed = half(block[:2]), half(block[2:4]), block[4:]
    return [scale * (byte & 15) + least for byte in packed] + [
        scale * (byte >> 4) + least for byte in packed
    ]


def naive_q8_0(block: bytes) -> list[float]:
    """34 bytes: a scale, then 32 signed bytes."""
    return [half(block[:2]) * value for value in struct.unpack("<32b", block[2:])]


NAIVE = {Kind.Q4_0: (18, naive_q4_0), Kind.Q4_1: (20, naive_q4_1), Kind.Q8_0: (34, naive_q8_0)}


@pytest.mark.parametrize("kind", NAIVE, ids=lambda kind: kind.name)
def test_blocks_dequantise_as_the_format_says(kind: Kind, tiny_gguf, tmp_path: Path) -> None:
    path = tiny_gguf(kind=kind, architecture="qwen2").write(tmp_path / "tiny.gguf")
    layout = inspect_gguf(path)
    tensors = dict(iterate_gguf_tensors(layout))
    size, naive = NAIVE[kind]
    raw = path.read_bytes()
    for name in ("embedding", "layers.0.q", "layers.1.down"):
        info = layout.header.tensors[layout.names[name]]
        assert info.type.name == kind.name
        stored = raw[info.start : info.start + info.size]
        values = [
            value
            for begin in range(0, info.size, size)
            for value in naive(stored[begin : begin + size])
        ]
        expected = torch.tensor(values, dtype=torch.float32).reshape(info.shape)
        torch.testing.assert_close(tensors[name], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16], ids=lambda kind: kind.name)
def test_float_types_are_read_exactly(kind: Kind, tiny_gguf, tmp_path: Path) -> None:
    values = np.random.default_rng(1).standard_normal((HIDDEN, HIDDEN), dtype=np.float32)
    tiny = tiny_gguf(kind=kind, tensors={"blk.0.attn_output.weight": values})
    layout = inspect_gguf(tiny.write(tmp_path / "tiny.gguf"))
    tensors = dict(iterate_gguf_tensors(layout))
    to = {Kind.F32: torch.float32, Kind.F16: torch.float16, Kind.BF16: torch.bfloat16}[kind]
    assert torch.equal(tensors["layers.0.o"], torch.from_numpy(values).to(to).float())
    assert all(tensor.dtype == torch.float32 for tensor in tensors.values())


K_QUANTS = [
    Kind.Q2_K,
    Kind.Q3_K,
    Kind.Q4_K,
    Kind.Q5_K,
    Kind.Q6_K,
    Kind.Q5_0,
    Kind.Q5_1,
    Kind.IQ4_NL,
]


@pytest.mark.parametrize("kind", K_QUANTS, ids=lambda kind: kind.name)
def test_k_quants_agree_with_the_whole_array_dequantiser(kind: Kind, tmp_path: Path) -> None:
    """Random bytes are legal blocks: what counts is that the right ones reach the right rows."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    rows, columns = 6, 2 * elements
    packed = np.random.default_rng(3).integers(0, 120, (rows, 2 * size), dtype=np.uint8)
    path = tmp_path / "k.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("t", packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    from engine.model.gguf_reader import read_header
    from engine.model.gguf_tensors import _dequantise

    info = read_header(path).tensors["t"]
    assert info.shape == (rows, columns)
    tensor = _dequantise(np.memmap(path, dtype=np.uint8, mode="r"), info)
    oracle = gguf.GGUFReader(path).tensors[0]
    expected = gguf.quants.dequantize(np.array(oracle.data), kind)
    assert np.array_equal(tensor.numpy(), expected, equal_nan=True)


def naive_half_split(rows: np.ndarray, heads: int) -> np.ndarray:
    """Neighbours (2i, 2i + 1) of each head become (i, i + D/2)."""
    out = np.empty_like(rows)
    for head in range(heads):
        base = head * HEAD_DIM
        for pair in range(HEAD_DIM // 2):
            out[base + pair] = rows[base + 2 * pair]
            out[base + pair + HEAD_DIM // 2] = rows[base + 2 * pair + 1]
    return out


def test_llama_rows_come_back_in_half_split_order(tiny_gguf, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    q = random.standard_normal((HEADS * HEAD_DIM, HIDDEN), dtype=np.float32)
    k = random.standard_normal((KV_HEADS * HEAD_DIM, HIDDEN), dtype=np.float32)
    given = {"blk.1.attn_q.weight": q, "blk.1.attn_k.weight": k}
    layout = inspect_gguf(tiny_gguf(tensors=given).write(tmp_path / "tiny.gguf"))
    tensors = dict(iterate_gguf_tensors(layout))
    assert np.array_equal(tensors["layers.1.q"].numpy(), naive_half_split(q, HEADS))
    assert np.array_equal(tensors["layers.1.k"].numpy(), naive_half_split(k, KV_HEADS))


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_qwen_rows_stay_as_they_are(architecture: str, tiny_gguf, tmp_path: Path) -> None:
    q = np.random.default_rng(2).standard_normal((HEADS * HEAD_DIM, HIDDEN), dtype=np.float32)
    tiny = tiny_gguf(architecture=architecture, tensors={"blk.0.attn_q.weight": q})
    layout = inspect_gguf(tiny.write(tmp_path / "tiny.gguf"))
    assert np.array_equal(dict(iterate_gguf_tensors(layout))["layers.0.q"].numpy(), q)
    assert layout.config.family == architecture
    assert layout.config.qkv_bias == (architecture == "qwen2")
    assert layout.config.qk_norm == (architecture == "qwen3")


def test_head_is_tied_where_the_file_has_none(tiny_gguf, tmp_path: Path) -> None:
    assert inspect_gguf(tiny_gguf().write(tmp_path / "tied.gguf")).config.tied_head
    untied = inspect_gguf(tiny_gguf(tied=False).write(tmp_path / "untied.gguf"))
    assert not untied.config.tied_head
    assert "head" in dict(iterate_gguf_tensors(untied))


@pytest.mark.parametrize(
    "name",
    ["token_embd.weight", "output_norm.weight", "blk.1.ffn_down.weight", "blk.0.attn_q.weight"],
)
def test_missing_tensors_are_named(name: str, tiny_gguf, tmp_path: Path) -> None:
    path = tiny_gguf(without={name}).write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match=rf"tiny\.gguf.*{name}.*missing"):
        inspect_gguf(path)


def test_wrong_shapes_are_named_with_both(tiny_gguf, tmp_path: Path) -> None:
    wrong = {"blk.1.ffn_up.weight": np.zeros((95, HIDDEN), dtype=np.float32)}
    path = tiny_gguf(tensors=wrong).write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match=r"ffn_up.weight.*\[95, 64\].*expected \[96, 64\]"):
        inspect_gguf(path)


def test_tensors_that_would_be_left_out_are_refused(tiny_gguf, tmp_path: Path) -> None:
    extra = {"blk.0.attn_output.bias": np.zeros(HIDDEN, dtype=np.float32)}
    path = tiny_gguf(tensors=extra).write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match=r"attn_output\.bias"):
        inspect_gguf(path)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("block_count", 3, r"blk\.2\..*missing"),
        ("block_count", 4_000_000_000, "layers"),
        ("attention.head_count", 0, "heads"),
        ("attention.head_count_kv", 3, "multiple"),
        ("attention.key_length", 15, "15 channels"),
        ("rope.dimension_count", 8, "rope.dimension_count"),
        ("rope.scaling.type", "yarn", "yarn"),
        ("expert_count", 8, "mixture of experts"),
        ("logit_scale", 0.5, "logit_scale"),
        ("attention.layer_norm_rms_epsilon", 0.0, "epsilon"),
        ("attention.layer_norm_rms_epsilon", None, "missing"),
        ("rope.freq_base", float("nan"), "rotary base"),
        ("embedding_length", "64", "whole number"),
    ],
)
def test_settings_that_cannot_be_run(
    key: str, value: object, words: str, tiny_gguf, tmp_path: Path
) -> None:
    path = tiny_gguf(metadata={f"llama.{key}": value}).write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match=words):
        inspect_gguf(path)


def test_other_architectures_are_refused_with_a_list(tiny_gguf, tmp_path: Path) -> None:
    path = tiny_gguf(architecture="gemma3").write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match="gemma3.*llama, qwen2, qwen3"):
        inspect_gguf(path)


def test_metadata_becomes_the_config(tiny_gguf, tmp_path: Path) -> None:
    metadata = {
        "llama.attention.sliding_window": 32,
        "llama.rope.freq_base": 500_000.0,
        "llama.rope.scaling.type": "linear",
        "llama.rope.scaling.factor": 4.0,
    }
    config = inspect_gguf(tiny_gguf(metadata=metadata).write(tmp_path / "tiny.gguf")).config
    assert (config.layers, config.hidden, config.intermediate) == (2, 64, 96)
    assert (config.heads, config.kv_heads, config.head_dim) == (4, 2, 16)
    assert (config.context, config.sliding_window, config.rope_base) == (128, 32, 500_000.0)
    assert config.norm_eps == 1e-5
    assert config.rope_scaling is not None
    assert (config.rope_scaling.kind, config.rope_scaling.factor) == ("linear", 4.0)


def transformers_divisors(base: float, factor: float) -> np.ndarray:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        max_position_embeddings=131_072,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": base,
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8_192,
        },
    )
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = base ** -(np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    return (plain / frequencies.numpy()).astype(np.float32)


@pytest.mark.oracle
@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_found_from_its_divisors(
    factor: float, tiny_gguf, tmp_path: Path
) -> None:
    divisors = transformers_divisors(500_000.0, factor)
    tiny = tiny_gguf(
        metadata={"llama.rope.freq_base": 500_000.0}, tensors={"rope_freqs.weight": divisors}
    )
    scaling = inspect_gguf(tiny.write(tmp_path / "tiny.gguf")).config.rope_scaling
    assert scaling is not None
    assert (scaling.kind, scaling.original_context) == ("llama3", 8_192)
    assert scaling.factor == pytest.approx(factor, rel=1e-5)
    assert llama3_divisors(500_000.0, HEAD_DIM, scaling) == pytest.approx(divisors, rel=1e-4)


def test_divisors_of_another_rule_are_refused(tiny_gguf, tmp_path: Path) -> None:
    odd = np.linspace(1, 8, HEAD_DIM // 2, dtype=np.float32)
    path = tiny_gguf(tensors={"rope_freqs.weight": odd}).write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match="rope_freqs"):
        inspect_gguf(path)


@pytest.mark.parametrize("divisor", [0.0, -1.0, float("nan"), float("inf")])
def test_divisors_that_cannot_be(divisor: float, tiny_gguf, tmp_path: Path) -> None:
    divisors = np.full(HEAD_DIM // 2, divisor, dtype=np.float32)
    path = tiny_gguf(tensors={"rope_freqs.weight": divisors}).write(tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match="rope_freqs"):
        inspect_gguf(path)


def test_damaged_headers_load_or_are_refused(tiny_gguf, tmp_path: Path, own_cache: Path) -> None:
    """Whatever a few wrong bytes before the data say, nothing but ModelError comes of it."""
    whole = tiny_gguf(kind=Kind.Q4_0).write(tmp_path / "whole.gguf")
    raw = whole.read_bytes()
    start = min(info.start for info in inspect_gguf(whole).header.tensors.values())
    random = np.random.default_rng(11)
    path = tmp_path / "damaged.gguf"
    refused = 0
    for _ in range(300):
        damaged = bytearray(raw)
        for place in random.integers(0, start, random.integers(1, 4)):
            damaged[place] = random.choice([0, 1, 255, random.integers(256)])
        path.write_bytes(damaged)
        try:
            load_model(ModelSource("gguf", path, "damaged"))
        except ModelError as error:
            assert "damaged.gguf" in str(error) or "chat template" in str(error)
            refused += 1
    assert refused > 100


def test_file_that_shrinks_after_the_check(tiny_gguf, tmp_path: Path) -> None:
    path = tiny_gguf().write(tmp_path / "tiny.gguf")
    layout = inspect_gguf(path)
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(ModelError, match="shorter"):
        dict(iterate_gguf_tensors(layout))


@pytest.mark.oracle
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("kind", [Kind.F32, Kind.Q8_0], ids=lambda kind: kind.name)
def test_tensors_equal_those_that_transformers_reads(
    architecture: str, kind: Kind, tiny_gguf, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    tiny = tiny_gguf(architecture=architecture, kind=kind, tied=False)
    path = tiny.write(tmp_path / "tiny.gguf")
    oracle = AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file=path.name, dtype=torch.float32
    ).state_dict()
    tensors = dict(iterate_gguf_tensors(inspect_gguf(path)))
    assert len(tensors) == len(oracle)
    for name, tensor in tensors.items():
        theirs = oracle[file_name(name, HUGGING_FACE_NAMES, HUGGING_FACE_LAYER)]
        torch.testing.assert_close(tensor, theirs, rtol=0, atol=0, msg=name)


@pytest.mark.model
def test_default_model_loads(default_model_path: Path) -> None:
    model = load_model(ModelSource("gguf", default_model_path, "SmolLM2"))
    config = model.config
    assert (config.layers, config.hidden, config.heads, config.kv_heads) == (30, 576, 9, 3)
    assert (config.head_dim, config.intermediate, config.vocabulary) == (64, 1536, 49_152)
    assert (config.rope_base, config.norm_eps, config.tied_head) == (100_000.0, 1e-5, True)
    assert model.digest == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert model.report.permuted
    assert model.report.types == {"Q8_0": 1, "Q4_1": 210, "F32": 61}
    assert model.report.tensor_bytes == 4 * sum(t.numel() for t in model.tensors.values())
    assert "head" not in model.tensors
