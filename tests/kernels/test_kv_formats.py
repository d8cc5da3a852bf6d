"""8 and 4 bits: what is read back, against the definition and against its error bound."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.kv_store import int4, int8
from kernels.kv_store.reference import kept_in_4_bits, kept_in_8_bits

Bits = Literal[8, 4]
REFERENCES = {8: kept_in_8_bits, 4: kept_in_4_bits}
HALF = 2.0**-11
"""float16's relative rounding error."""


def round_trip(vectors: Tensor, bits: Bits) -> tuple[Tensor, Tensor]:
    """(what is read back in float32, the scales [..., 1] in float32)."""
    out = torch.full(vectors.shape, math.nan, dtype=torch.float32)
    if bits == 8:
        codes, scale = int8.quantise(vectors)
        assert (codes.dtype, scale.dtype) == (torch.int8, torch.float16)
        int8.dequantise(codes, scale, out)
    else:
        packed, scale, least = int4.quantise(vectors)
        assert packed.shape == (*vectors.shape[:-1], vectors.shape[-1] // 2)
        assert (packed.dtype, least.dtype) == (torch.uint8, torch.float16)
        int4.dequantise(packed, scale, least, out)
    return out, scale.to(torch.float32)


def bound(vectors: Tensor, scale: Tensor, bits: Bits) -> Tensor:
    """Half a step; 4 bits may also miss by what float16 rounds off the least value."""
    step = scale / 2
    if bits == 4:
        step = torch.maximum(step, vectors.amin(-1, keepdim=True).abs() * HALF + 2.0**-25)
    return step * (1 + 1e-5) + vectors.abs() * 2.0**-22  # and float32's own arithmetic


numbers = st.floats(-6e4, 6e4, width=32)
small = st.floats(-(2.0**-20), 2.0**-20, width=32)
ordinary = st.floats(-8, 8, width=32)
vectors_of = st.one_of(
    [st.lists(kind, min_size=8, max_size=8) for kind in (numbers, small, ordinary)]
)


@pytest.mark.parametrize("bits", [8, 4])
@settings(max_examples=150, deadline=None)
@given(vector=vectors_of)
@example(vector=[0.0] * 8)
@example(vector=[3.25] * 8)
@example(vector=[-0.1] * 8)
@example(vector=[1e-7, -1e-7] * 4)
@example(vector=[2.0**-24, 0.0] * 4)
@example(vector=[1000.0, 1000.125] * 4)
@example(vector=[0.0] * 7 + [60000.0])
@example(vector=[127.4] + [0.2] * 7)
def test_the_error_stays_within_half_a_step(bits: Bits, vector: list[float]) -> None:
    given_ = torch.tensor([vector])
    back, scale = round_trip(given_, bits)
    assert bool(((back - given_).abs() <= bound(given_, scale, bits)).all())


@pytest.mark.parametrize(("bits", "levels"), [(8, 254), (4, 15)])
def test_the_step_is_the_range_cut_into_its_levels(bits: Bits, levels: int) -> None:
    """A bound of half a step proves nothing if the step may be anything."""
    vectors = torch.randn(50, 64, generator=torch.Generator().manual_seed(0))
    _, scale = round_trip(vectors, bits)
    symmetric = 2 * vectors.abs().amax(-1, keepdim=True)
    span = (
        symmetric if bits == 8 else vectors.amax(-1, keepdim=True) - vectors.amin(-1, keepdim=True)
    )
    torch.testing.assert_close(scale, span / levels, rtol=0.005, atol=0)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("size", [1e-6, 1.0, 300.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_what_is_read_back_is_the_definition(bits: Bits, size: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(bits)
    vectors = (torch.randn(2, 5, 16, generator=generator) * size).to(dtype)
    back, scale = round_trip(vectors, bits)
    truth = torch.tensor([REFERENCES[bits](row) for row in vectors.flatten(0, 1).tolist()])
    # A number half way between two codes may go either way in float32 and in Python's doubles.
    differs = (back.flatten(0, 1) - truth).abs() > scale.flatten(0, 1) * 1e-3
    assert int(differs.sum()) <= 1
    assert bool(((back.flatten(0, 1) - truth).abs() <= scale.flatten(0, 1) * 1.001).all())


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("fault", [math.nan, math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("at", [0, 3, 7])
def test_a_fault_is_never_read_back_as_numbers(bits: Bits, fault: float, at: int) -> None:
    vectors = torch.ones(3, 8)
    vectors[1, at] = fault
    back, _ = round_trip(vectors, bits)
    assert not bool(torch.isfinite(back[1] @ torch.ones(8)))  # any score over it shows it
    assert bool(torch.isfinite(back[[0, 2]]).all())


def test_zeros_are_exact() -> None:
    for bits in (8, 4):
        back, _ = round_trip(torch.zeros(2, 6), bits)
        assert torch.equal(back, torch.zeros(2, 6))


def test_four_bits_put_the_first_code_in_the_low_half() -> None:
    packed, scale, least = int4.quantise(torch.tensor([[0.0, 15.0, 1.0, 0.0]]))
    assert packed.tolist() == [[0xF0, 0x01]]
    assert (float(least), round(float(scale), 2)) == (0.0, 1.0)


def test_vectors_are_read_from_strided_parts() -> None:
    """The cache hands over slices of its tensors."""
    vectors = torch.randn(4, 3, 8, generator=torch.Generator().manual_seed(1))
    packed, scale, least = int4.quantise(vectors)
    out = torch.empty(4, 2, 8)
    int4.dequantise(packed[:, 1:], scale[:, 1:], least[:, 1:], out)
    assert torch.equal(out, round_trip(vectors[:, 1:].contiguous(), 4)[0])
