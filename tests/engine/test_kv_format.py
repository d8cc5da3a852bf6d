"""Bytes of a cached vector, counted by hand, and the published sizes of well-known models."""

from __future__ import annotations

import msgspec
import pytest
from known_machines import SMOLLM2

from engine.cache_plan import token_bytes
from engine.config import CacheConfig, EngineConfig
from engine.kv_format import KV_WIDTHS, vector_bytes
from engine.model.config import ModelConfig

LLAMA2_70B = msgspec.structs.replace(
    SMOLLM2, layers=80, hidden=8192, heads=64, kv_heads=8, head_dim=128, context=4096
)
QWEN3_06B = msgspec.structs.replace(
    SMOLLM2, layers=28, hidden=1024, heads=16, kv_heads=8, head_dim=128
)


def kv(model: ModelConfig, tokens: int, bits: int = 0, element: int = 2) -> int:
    return tokens * token_bytes(EngineConfig(cache=CacheConfig(bits=bits)), model, element)


@pytest.mark.parametrize(
    ("head_dim", "bits", "element", "expected"),
    [
        (64, 0, 4, 256),
        (64, 0, 2, 128),
        (64, 16, 4, 128),
        (64, 16, 2, 128),
        (64, 8, 2, 64 + 2),
        (64, 4, 4, 32 + 2 + 2),
        (80, 4, 2, 40 + 4),
        (1, 8, 4, 3),
    ],
)
def test_a_vector_takes_its_codes_and_its_scales(
    head_dim: int, bits: int, element: int, expected: int
) -> None:
    assert vector_bytes(head_dim, bits, element) == expected


def test_a_width_without_a_format_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(ValueError, match="no KV format has 3 bits; legal: 0, 16, 8, 4"):
        vector_bytes(64, 3, 2)


def test_an_odd_head_cannot_be_packed_two_to_a_byte() -> None:
    with pytest.raises(ValueError, match="a head of 65 is odd"):
        vector_bytes(65, 4, 2)
    assert vector_bytes(65, 8, 2) == 67


def test_fewer_bits_never_take_more_room() -> None:
    sizes = [vector_bytes(64, bits, 4) for bits in KV_WIDTHS]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == len(sizes)


def test_the_default_model_takes_23040_bytes_a_token_in_16_bits() -> None:
    assert kv(SMOLLM2, 1) == 23_040
    assert kv(SMOLLM2, 2048) == pytest.approx(47e6, rel=0.01)
    assert kv(SMOLLM2, 1, bits=16, element=4) == 23_040
    assert kv(SMOLLM2, 1, bits=8) == 2 * 30 * 3 * 66
    assert kv(SMOLLM2, 1, bits=4) == 2 * 30 * 3 * 36


def test_70_billion_weights_with_64_kv_heads_would_hold_5_gigabytes_of_2048_tokens() -> None:
    """The tale's 5.4 GB is right for full heads; the real model's 8 take an eighth of it."""
    full = msgspec.structs.replace(LLAMA2_70B, kv_heads=64)
    assert kv(full, 2048) / 1e9 == pytest.approx(5.37, abs=0.005)
    assert kv(LLAMA2_70B, 2048) / 1e9 == pytest.approx(0.67, abs=0.005)
    assert 32 * kv(LLAMA2_70B, 2048) / 1e9 == pytest.approx(21.5, abs=0.05)


def test_the_head_dimension_is_the_models_own_not_hidden_over_heads() -> None:
    """28 layers, 8 KV heads of 128 (not 1024 / 16 = 64): 112 KiB a token."""
    assert kv(QWEN3_06B, 1) == 2 * 28 * 8 * 128 * 2 == 114_688
