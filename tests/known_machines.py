"""The default model's shape and an ordinary machine, for tests in every folder."""

from __future__ import annotations

from typing import Any

import msgspec

from engine.capabilities import Capabilities
from engine.model.config import ModelConfig

SMOLLM2 = ModelConfig(
    family="llama",
    layers=30,
    hidden=576,
    heads=9,
    kv_heads=3,
    head_dim=64,
    intermediate=1536,
    vocabulary=49_152,
    context=8192,
    rope_base=100_000.0,
    norm_eps=1e-5,
    tied_head=True,
)
_ORDINARY = Capabilities(
    device="cpu",
    device_name="Test CPU",
    physical_cores=2,
    logical_cores=2,
    memory_bytes=1 << 30,
    instruction_set="none",
    torch_version="0",
    python_version="3",
    platform="test",
    precisions={"float32": "", "bfloat16": "", "float16": ""},
    linear_forms=("plain", "packed"),
    low_bit_forms={
        "float32": ("int4-group", "int8-row", "int8-dynamic", "packed", "int8-blocked"),
        "bfloat16": ("int4-group", "int8-row", "int8-dynamic", "packed", "int8-blocked"),
        "float16": ("int4-group", "int8-row", "int8-dynamic", "packed", "int8-blocked"),
    },
    weight_bits={"8": "", "4": "", "3": "", "2": ""},
)


def make_capabilities(**changes: Any) -> Capabilities:
    """An ordinary machine but for `changes`."""
    return msgspec.structs.replace(_ORDINARY, **changes)
