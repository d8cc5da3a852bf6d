"""A model as it lies on disk: every name, shape and size checked, no weight read yet.

Nothing here needs torch or numpy, so the interface can look at a model before the engine loads it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.model.config import ModelConfig, RopeScaling
from engine.model.errors import fault
from engine.model.families import folder_config, gguf_config
from engine.model.gguf_header import GGUFHeader
from engine.model.gguf_reader import read_header
from engine.model.json_files import read_object
from engine.model.safetensors_header import StoredTensor, read_folder
from engine.model.tensor_names import (
    GGUF_LAYER,
    GGUF_NAMES,
    HUGGING_FACE_LAYER,
    HUGGING_FACE_NAMES,
    check_tensors,
    expected_shapes,
    file_name,
)

ROPE_FACTORS = "rope_freqs.weight"
LLAMA3_ORIGINAL_CONTEXT = 8_192


@dataclass(frozen=True)
class GGUFLayout:
    """`names` maps each tensor's name here to its name in the file."""

    config: ModelConfig
    header: GGUFHeader
    names: Mapping[str, str]


@dataclass(frozen=True)
class FolderLayout:
    """`names` maps each tensor's name here to its name in the files."""

    config: ModelConfig
    folder: Path
    stored: Mapping[str, StoredTensor]
    names: Mapping[str, str]


def inspect_gguf(path: Path) -> GGUFLayout:
    """Read the header of a GGUF file and hold it against the model it claims to be.

    Raises:
        ModelError: names the file and the fault, or the tensor with both shapes.
    """
    header = read_header(path)
    config = gguf_config(header)
    shapes = expected_shapes(config)
    names = {name: file_name(name, GGUF_NAMES, GGUF_LAYER) for name in shapes}
    expected = {names[name]: shape for name, shape in shapes.items()}
    found = {name: info.shape for name, info in header.tensors.items()}
    check_tensors(path, expected, found, frozenset({ROPE_FACTORS}))
    if ROPE_FACTORS in found:
        config = msgspec.structs.replace(config, rope_scaling=_llama3_scaling(header, config))
    return GGUFLayout(config, header, names)


def inspect_folder(folder: Path) -> FolderLayout:
    """Read config.json and the safetensors headers of a Hugging Face folder, and compare them.

    Raises:
        ModelError: names the file and the fault, or the tensor with both shapes.
    """
    if not folder.is_dir():
        raise fault(folder, "is not a folder")
    config = folder_config(read_object(folder / "config.json"))
    stored = read_folder(folder)
    shapes = expected_shapes(config)
    names = {name: file_name(name, HUGGING_FACE_NAMES, HUGGING_FACE_LAYER) for name in shapes}
    expected = {names[name]: shape for name, shape in shapes.items()}
    found = {name: tensor.shape for name, tensor in stored.items()}
    check_tensors(folder, expected, found, _ignorable(config))
    return FolderLayout(config, folder, stored, names)


def _ignorable(config: ModelConfig) -> frozenset[str]:
    """Tensors that old files carry and no model needs: rotary tables, and a tied head's copy."""
    tables = {
        f"model.layers.{index}.self_attn.rotary_emb.inv_freq" for index in range(config.layers)
    }
    return frozenset(tables | ({"lm_head.weight"} if config.tied_head else set()))


def _llama3_scaling(header: GGUFHeader, config: ModelConfig) -> RopeScaling | None:
    """Llama 3's scaling, found again from the divisors that a GGUF file keeps in its place.

    The file has one divisor for each of the D/2 rotary frequencies and not the rule that made
    them. All Llama 3 models share the rule's bounds (1 and 4, over 8,192 tokens), so the largest
    divisor is the factor; the rule must then give back every divisor.
    """
    info = header.tensors[ROPE_FACTORS]
    count = config.head_dim // 2
    if info.shape != (count,) or info.type.name != "F32":
        raise fault(
            header.path,
            f"tensor {ROPE_FACTORS!r} is {info.type.name} of shape {list(info.shape)}; expected "
            f"F32 of [{count}]",
        )
    with header.path.open("rb") as file:
        file.seek(info.start)
        divisors = struct.unpack(f"<{count}f", file.read(info.size))
    if all(divisor == 1.0 for divisor in divisors):
        return config.rope_scaling
    if not all(math.isfinite(divisor) and divisor > 0.0 for divisor in divisors):
        raise fault(header.path, f"tensor {ROPE_FACTORS!r} holds a divisor that is not above zero")
    scaling = RopeScaling("llama3", max(divisors), 1.0, 4.0, LLAMA3_ORIGINAL_CONTEXT)
    rule = llama3_divisors(config.rope_base, config.head_dim, scaling)
    if not all(
        math.isclose(found, right, rel_tol=1e-3)
        for found, right in zip(divisors, rule, strict=True)
    ):
        raise fault(header.path, f"tensor {ROPE_FACTORS!r} does not follow Llama 3's rule")
    return scaling


def llama3_divisors(base: float, head_dim: int, scaling: RopeScaling) -> list[float]:
    """What Llama 3 divides each of the D/2 rotary frequencies by.

    With wavelength w = 2π · base^(2i/D) and context c: 1 where w < c / high, `factor` where
    w > c / low, and between them 1 / ((1 - s) / factor + s) with s = (c / w - low) / (high - low).
    """
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    divisors: list[float] = []
    for index in range(head_dim // 2):
        turns = scaling.original_context / (2 * math.pi * base ** (2 * index / head_dim))
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - smooth) / scaling.factor + smooth))
    return divisors
