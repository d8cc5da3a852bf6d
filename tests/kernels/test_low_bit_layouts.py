"""Packed codes come back as they went in, wherever the layout is another's or our own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.linear import bitstream, fused, int4_layout, int8_blocked
from kernels.linear.bitstream import RUN, fields
from kernels.linear.int8_pieces import ZERO_POINT, Pieces, rounded
from kernels.linear.low_bit import LowBitLinear


def random_codes(outputs: int, inputs: int, bits: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(outputs * 31 + inputs)
    return torch.randint(0, 1 << bits, (outputs, inputs), dtype=torch.uint8, generator=generator)


@settings(deadline=None, max_examples=60)
@given(
    bits=st.sampled_from((8, 4, 3, 2)),
    outputs=st.integers(1, 40),
    inputs=st.integers(1, 150),
)
def test_a_stream_of_codes_takes_whole_bytes_and_comes_back(
    bits: int, outputs: int, inputs: int
) -> None:
    codes = random_codes(outputs, inputs, bits)
    packed = bitstream.pack(codes, bits)
    assert packed.nbytes == outputs * -(-inputs * bits // 8)
    first = outputs // 3
    opened = packed.decode(first, outputs, torch.float32) + 2 ** (bits - 1)
    assert torch.equal(opened, codes[first:].t().to(torch.float32))


@pytest.mark.parametrize("bits", [8, 4, 3, 2])
def test_a_run_is_one_number_with_the_first_code_lowest(bits: int) -> None:
    """Python's whole numbers as the oracle: Σ code_j · 2^(j · bits), cut into words."""
    codes = random_codes(3, RUN, bits)
    words = bitstream.pack(codes, bits).words
    for output in range(3):
        number = sum(int(code) << (j * bits) for j, code in enumerate(codes[output]))
        cut = [number >> (32 * word) & 0xFFFFFFFF for word in range(bits)]
        assert [int(word) & 0xFFFFFFFF for word in words[0, :, output]] == cut
    assert sum(field.count for field in fields(bits)) == RUN


@pytest.mark.parametrize("outputs", [32, 64, 96, 160, 576, 1056])
def test_the_int4_pack_is_read_where_torch_put_it(outputs: int) -> None:
    """A product with one input alone tells a column of the matrix, whatever the layout."""
    layout = int4_layout.layout_of(outputs)
    if layout is None:
        pytest.skip("torch packs int4 in no layout known here")
    inputs = 64
    codes = random_codes(outputs, inputs, 4)
    packed = int4_layout.pack(codes)
    ones = torch.ones(inputs // 32, outputs, 2, dtype=torch.bfloat16)
    ones[..., 1] = 0
    identity = torch.eye(inputs, dtype=torch.bfloat16)
    columns = torch.ops.aten._weight_int4pack_mm_for_cpu(identity, packed, 32, ones)
    told = columns.t().to(torch.int64) + 8
    ids = torch.arange(outputs)
    assert torch.equal(told, codes.to(torch.int64))
    found = int4_layout.code_rows(packed, layout, outputs, inputs, ids)
    assert torch.equal(found.to(torch.int64), told)


NARROW = """
import torch
from kernels.linear import int4_layout
found = []
for outputs in (32, 96, 576):
    codes = torch.randint(0, 16, (outputs, 64), dtype=torch.uint8)
    layout = int4_layout.layout_of(outputs)
    rows = int4_layout.code_rows(
        int4_layout.pack(codes), layout, outputs, 64, torch.arange(outputs)
    )
    found.append(torch.equal(rows, codes))
print(torch.backends.cpu.get_cpu_capability(), *found)
"""


@pytest.mark.process
@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_the_packs_of_narrower_processors_are_read_too(capability: str) -> None:
    run = subprocess.run(
        (sys.executable, "-c", NARROW),
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "ATEN_CPU_CAPABILITY": capability},
    )
    assert run.stdout.split()[1:] == ["True"] * 3, run.stdout + run.stderr


def test_a_pack_that_does_not_come_back_counts_as_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def shuffled(codes: torch.Tensor) -> torch.Tensor:
        return torch.roll(honest(codes).view(-1), 1)

    honest = int4_layout.pack
    monkeypatch.setattr(int4_layout, "pack", shuffled)
    assert int4_layout.layout_of.__wrapped__(64) is None


def test_an_int8_layout_other_than_expected_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    if not int8_blocked.works():
        pytest.skip("no oneDNN int8 product here")
    honest = int8_blocked._view
    monkeypatch.setattr(int8_blocked, "_view", lambda *where: honest(*where).roll(1))
    assert not int8_blocked.works.__wrapped__()


def test_an_int8_product_that_saturates_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    if not int8_blocked.works():
        pytest.skip("no oneDNN int8 product here")
    honest = int8_blocked._product
    monkeypatch.setattr(
        int8_blocked, "_product", lambda *of: honest(*of).clamp(-(2**15), 2**15 - 1)
    )
    assert not int8_blocked.works.__wrapped__()


@pytest.mark.parametrize(("count", "lost"), [(1, 1 / 250), (2, 2.0**-15), (3, 2.0**-22)])
@pytest.mark.parametrize("rows", [1, 4])
def test_pieces_put_together_are_the_activation(count: int, lost: float, rows: int) -> None:
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(rows, 200, generator=generator)
    x[:, 0] = 5.0
    parts = torch.empty(count * rows, 200, dtype=torch.uint8)
    pieces = Pieces(count)
    step = pieces.split(x, parts)
    whole = sum(
        256**power * (parts[power * rows : (power + 1) * rows].double() - ZERO_POINT)
        for power in range(count)
    )
    assert float((whole * step - x.double()).abs().max()) <= lost * 5.0
    joined = pieces.join(parts.to(torch.float32) - ZERO_POINT, step)
    assert float((joined.double() - x.double()).abs().max()) <= lost * 5.0
    if count == 1:
        assert torch.allclose(rounded(x), joined)


def test_four_pieces_are_none() -> None:
    with pytest.raises(ValueError, match="1, 2 or 3"):
        Pieces(4)


def laid_out(product: fused.FusedProduct | None, group: int) -> tuple[LowBitLinear, torch.Tensor]:
    """3 bits, 192 inputs, and the float64 weight."""
    codes = random_codes(50, 192, 3)
    scale = torch.rand(50, 192 // group, generator=torch.Generator().manual_seed(1)) + 0.1
    zero = torch.rand(50, 192 // group, generator=torch.Generator().manual_seed(2)) - 0.5
    wide = (codes.double() - 4).view(50, -1, group) * scale.double()[:, :, None]
    truth = (wide + zero.double()[:, :, None]).view(50, 192)
    return LowBitLinear(codes, scale, zero, 3, fused=product), truth


def test_the_compiled_product_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three bits cross words; groups of 32 are one run each, one of 192 is the whole row."""
    monkeypatch.delenv(fused.SWITCH, raising=False)
    if not fused.has_compiler():
        pytest.skip("no C++ compiler here")
    other = fused.fused_product(2, False, torch.float32)
    product = fused.fused_product(3, False, torch.float32)
    assert other is not None and product is not None and product.seconds > 0
    for group in (32, 96, 192):
        low, truth = laid_out(product, group)
        assert low.form == "packed-3bit compiled"
        for rows in (1, 2, 4, 5):
            generator = torch.Generator().manual_seed(rows)
            x = torch.randn(rows, 192, generator=generator)
            error = (low(x).double() - x.double() @ truth.T).abs().max()
            assert float(error) < 1e-5 * float((x.double() @ truth.T).abs().max())
    low, _ = laid_out(product, 16)  # a group ends within a run
    assert low.form == "packed-3bit plain"


def test_where_nothing_compiles_the_form_says_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(bits: int, symmetric: bool) -> None:
        raise RuntimeError("cc1plus: out of memory")

    def wrong(bits: int, symmetric: bool) -> object:
        return lambda x, places, words, *numbers: (torch.zeros(words.shape[2]), words)

    monkeypatch.delenv(fused.SWITCH, raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    for compiler in (broken, wrong):
        monkeypatch.setattr(fused, "_compile", compiler)
        product = fused.fused_product.__wrapped__(2, True, torch.float32)
        assert product is None
        assert laid_out(product, 32)[0].form == "packed-3bit plain"


def test_without_a_compiler_or_the_wish_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(bits: int, symmetric: bool) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(fused, "_compile", never)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert fused.fused_product.__wrapped__(2, True, torch.float32) is None
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv(fused.SWITCH, "off")
    assert fused.fused_product.__wrapped__(2, True, torch.float32) is None
