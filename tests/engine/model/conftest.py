"""Small model files, made anew for each test: by the gguf package's writer, or byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
import pytest

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, LAYERS, CONTEXT = 64, 4, 2, 16, 96, 2, 128
CONTROL, NORMAL = 3, 1


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, so that no test writes to the user's."""
    home = tmp_path / "cache"
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(home))
    return home


def byte_tokens() -> list[str]:
    """The 256 letters of byte-level BPE, by the library that invented none of ours."""
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


@dataclass
class TinyGGUF:
    """A GGUF file of a two-layer model, to be written with one thing changed."""

    architecture: str = "llama"
    metadata: dict[str, object] = field(default_factory=dict)
    without: set[str] = field(default_factory=set)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32
    tied: bool = True

    def shapes(self) -> dict[str, tuple[int, ...]]:
        vocabulary = len(self.tokens())
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (vocabulary, HIDDEN),
            "output_norm.weight": (HIDDEN,),
        }
        if not self.tied:
            shapes["output.weight"] = (vocabulary, HIDDEN)
        for i in range(LAYERS):
            layer = {
                "attn_norm.weight": (HIDDEN,),
                "attn_q.weight": (HEADS * HEAD_DIM, HIDDEN),
                "attn_k.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
                "attn_v.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
                "attn_output.weight": (HIDDEN, HEADS * HEAD_DIM),
                "ffn_norm.weight": (HIDDEN,),
                "ffn_gate.weight": (INNER, HIDDEN),
                "ffn_up.weight": (INNER, HIDDEN),
                "ffn_down.weight": (HIDDEN, INNER),
            }
            if self.architecture == "qwen2":
                layer["attn_q.bias"] = (HEADS * HEAD_DIM,)
                layer["attn_k.bias"] = (KV_HEADS * HEAD_DIM,)
                layer["attn_v.bias"] = (KV_HEADS * HEAD_DIM,)
            if self.architecture == "qwen3":
                layer["attn_q_norm.weight"] = (HEAD_DIM,)
                layer["attn_k_norm.weight"] = (HEAD_DIM,)
            shapes |= {f"blk.{i}.{name}": shape for name, shape in layer.items()}
        return shapes

    def tokens(self) -> list[str]:
        given = self.metadata.get("tokenizer.ggml.tokens")
        if isinstance(given, list):
            return given
        merged = ["he", "ll", "hell", "hello", "Ġw", "Ġwo", "or"]
        return [*byte_tokens(), *merged, "<|im_start|>", "<|im_end|>"]

    def write(self, path: Path) -> Path:
        arch, tokens = self.architecture, self.tokens()
        types = [CONTROL if token.startswith("<|") else NORMAL for token in tokens]
        merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "o r"]
        metadata: dict[str, object] = {
            f"{arch}.context_length": CONTEXT,
            f"{arch}.embedding_length": HIDDEN,
            f"{arch}.block_count": LAYERS,
            f"{arch}.feed_forward_length": INNER,
            f"{arch}.attention.head_count": HEADS,
            f"{arch}.attention.head_count_kv": KV_HEADS,
            f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
            f"{arch}.rope.freq_base": 10_000.0,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "smollm",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.merges": merges,
            "tokenizer.ggml.eos_token_id": len(tokens) - 1,
            **self.metadata,
        }
        writer = gguf.GGUFWriter(path, arch)
        for key, value in metadata.items():
            _add(writer, key, value)
        random = np.random.default_rng(7)
        for name, shape in self.shapes().items():
            if name in self.without:
                continue
            values = random.standard_normal(shape, dtype=np.float32)
            values = self.tensors.get(name, values)
            self._add_tensor(writer, name, values)
        for name, values in self.tensors.items():
            if name not in self.shapes():
                self._add_tensor(writer, name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _add_tensor(self, writer: gguf.GGUFWriter, name: str, values: np.ndarray) -> None:
        block = gguf.GGML_QUANT_SIZES[self.kind][0]
        if values.ndim == 2 and values.shape[1] % block == 0:
            packed = gguf.quants.quantize(values, self.kind)
            writer.add_tensor(name, packed, raw_dtype=self.kind)
        else:
            writer.add_tensor(name, values)


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        assert isinstance(value, list)
        writer.add_array(key, value)


@pytest.fixture
def tiny_gguf() -> type[TinyGGUF]:
    return TinyGGUF


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


@dataclass
class RawGGUF:
    """A GGUF file written field by field, so that any field can lie.

    `metadata` is (key, type number, bytes of the value); `tensors` is (name, dimensions innermost
    first, type number, offset).
    """

    metadata: Sequence[tuple[str, int, bytes]] = ()
    tensors: Sequence[tuple[str, Sequence[int], int, int]] = ()
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: int = 3
    tensor_count: int | None = None
    metadata_count: int | None = None
    alignment: int = 32
    order: str = "<"

    def build(self) -> bytes:
        tensors = len(self.tensors) if self.tensor_count is None else self.tensor_count
        metadata = len(self.metadata) if self.metadata_count is None else self.metadata_count
        out = self.magic + struct.pack(self.order + "IQQ", self.version, tensors, metadata)
        for key, kind, value in self.metadata:
            out += text(key) + struct.pack("<I", kind) + value
        for name, dimensions, kind, offset in self.tensors:
            out += text(name) + struct.pack("<I", len(dimensions))
            out += struct.pack(f"<{len(dimensions)}Q", *dimensions)
            out += struct.pack("<IQ", kind, offset)
        return out + b"\0" * (-len(out) % self.alignment) + self.data

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path


@pytest.fixture
def raw_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Write a hand-made GGUF file; keywords are the fields of RawGGUF."""
    return lambda **fields: RawGGUF(**fields).write(tmp_path / "raw.gguf")


@pytest.fixture
def tiny_tokenizer_json() -> dict[str, object]:
    """A byte-level tokenizer.json with two control tokens after the 256 bytes."""
    tokens = byte_tokens()
    added = [
        {
            "id": len(tokens) + index,
            "content": content,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for index, content in enumerate(("<|im_start|>", "<|im_end|>"))
    ]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": level | {"use_regex": True},
        "post_processor": None,
        "decoder": level | {"use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [],
        },
    }
