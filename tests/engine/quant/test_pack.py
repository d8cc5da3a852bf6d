"""Codes in bytes, against a string of bits written out one at a time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine.quant.pack import pack_codes, packed_width, unpack_codes
from engine.weight_format import Scheme, matrix_bytes

BITS = (8, 4, 3, 2)


def as_bytes(row: list[int], bits: int) -> list[int]:
    """The row as one long number, its first code lowest, cut into bytes."""
    number = sum(code << bits * index for index, code in enumerate(row))
    return list(number.to_bytes(-(-len(row) * bits // 8), "little"))


@st.composite
def codes(draw: st.DrawFn) -> tuple[Tensor, int]:
    bits = draw(st.sampled_from(BITS))
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 35))
    row = st.lists(st.integers(0, 2**bits - 1), min_size=columns, max_size=columns)
    return torch.tensor([draw(row) for _ in range(rows)], dtype=torch.uint8), bits


@settings(deadline=None)
@given(codes())
def test_codes_lie_side_by_side_from_the_lowest_bit(case: tuple[Tensor, int]) -> None:
    given_codes, bits = case
    assert pack_codes(*case).tolist() == [as_bytes(row, bits) for row in given_codes.tolist()]


@settings(deadline=None)
@given(codes())
def test_unpacking_gives_back_what_was_packed(case: tuple[Tensor, int]) -> None:
    given_codes, bits = case
    back = unpack_codes(pack_codes(given_codes, bits), bits, given_codes.shape[1])
    assert torch.equal(back, given_codes)


@settings(deadline=None)
@given(codes())
def test_the_bytes_are_those_of_the_price(case: tuple[Tensor, int]) -> None:
    """The price counts codes and, for a symmetric row, one scale of 2 bytes."""
    given_codes, bits = case
    rows, columns = given_codes.shape
    priced = matrix_bytes(Scheme(bits, symmetric=True), rows, columns, "packed", 2) - 2 * rows
    packed = pack_codes(given_codes, bits)
    assert packed.nbytes == rows * packed_width(columns, bits) == priced


@pytest.mark.parametrize("bits", BITS)
def test_packing_copies(bits: int) -> None:
    given_codes = torch.zeros(1, 8, dtype=torch.uint8)
    packed = pack_codes(given_codes, bits)
    given_codes += 1
    assert int(packed.sum()) == 0
    back = unpack_codes(packed, bits, 8)
    back += 1
    assert int(packed.sum()) == 0


def test_what_cannot_be_packed_is_refused() -> None:
    small = torch.full((1, 4), 4, dtype=torch.uint8)
    with pytest.raises(ValueError, match="a code of 4 does not fit in 2 bits"):
        pack_codes(small, 2)
    with pytest.raises(ValueError, match="legal: 8, 4, 3, 2"):
        pack_codes(small, 5)
    with pytest.raises(ValueError, match=r"uint8 \[N, K\]"):
        pack_codes(small.to(torch.int32), 4)
    with pytest.raises(ValueError, match=r"uint8 \[N, 3\]"):
        unpack_codes(torch.zeros(1, 2, dtype=torch.uint8), 4, 5)
    with pytest.raises(ValueError, match="legal"):
        unpack_codes(small, 6, 4)
