"""Packed codes come back as they went in, wherever the layout is another's or our own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import native
from kernels.linear import bitstream, compiled, fused, int4_layout, int8_blocked, low_bit_forms
from kernels.linear.bitstream import RUN, fields
from kernels.linear.crossover import LowBit
from kernels.linear.int8_pieces import ZERO_POINT, Pieces, rounded
from kernels.linear.low_bit_forms import make_low_bit


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


def laid_out(
    compiled: bool, bits: int, group: int, dtype: torch.dtype, symmetric: bool, outputs: int = 96
) -> tuple[LowBit, torch.Tensor, torch.Tensor]:
    """So many outputs of 192 inputs with a bias, and weight and bias in float64."""
    codes = random_codes(outputs, 192, bits)
    generator = torch.Generator().manual_seed(1)
    groups = 192 // group
    scale = (torch.rand(outputs, groups, generator=generator) + 0.1).to(dtype)
    zero = None if symmetric else (torch.rand(outputs, groups, generator=generator) - 0.5).to(dtype)
    bias = torch.randn(outputs, generator=generator).to(dtype)
    truth = (codes.double() - (1 << (bits - 1))).view(outputs, groups, group)
    truth = truth * scale.double()[:, :, None]
    if zero is not None:
        truth = truth + zero.double()[:, :, None]
    low = make_low_bit(
        codes, scale, zero, bits=bits, dtype=dtype, form="packed", bias=bias, compiled=compiled
    )
    return low, truth.view(outputs, 192), bias.double()


LOST = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize("bits", [8, 4, 3, 2])
def test_the_compiled_product_is_the_true_one(
    monkeypatch: pytest.MonkeyPatch, bits: int, dtype: torch.dtype
) -> None:
    """Against float64. Groups of 32 are one run each, one of 192 is the whole row; three bits cross
    words; one, two or four rows are decoded for at once, 32 are a block, more are multiplied dense
    where nothing need be widened. Dense and in rows the weight is the same."""
    monkeypatch.delenv(native.SWITCH, raising=False)
    if native.compiler() is None:
        pytest.skip("no C compiler here")
    functions = fused.fused_functions(bits, dtype)
    assert functions is not None and functions.seconds > 0
    for group, symmetric in ((32, True), (96, False), (192, False)):
        low, truth, bias = laid_out(True, bits, group, dtype, symmetric)
        assert low.form == f"packed-{bits}bit compiled"
        for rows in (1, 2, 3, 4, 5, 11, 32, 39):
            generator = torch.Generator().manual_seed(rows)
            x = torch.randn(rows, 192, generator=generator).to(dtype)
            y = low(x)
            assert y.dtype == dtype
            right = x.double() @ truth.T + bias
            assert float((y.double() - right).abs().max()) < LOST[dtype] * float(right.abs().max())
        close = LOST[dtype] * float(truth.abs().max())
        assert low.dense().dtype == dtype and low.dense().is_contiguous()
        assert float((low.dense().double() - truth).abs().max()) < close
        ids = torch.tensor((95, 0, 33, 0))
        assert float((low.rows(ids).double() - truth[ids]).abs().max()) < close
        plain, _, _ = laid_out(False, bits, group, dtype, symmetric)
        assert plain.form == f"packed-{bits}bit plain" and plain.nbytes == low.nbytes
    for group, outputs in ((16, 96), (32, 80)):  # a group ends within a run; outputs in a panel
        low, _, _ = laid_out(True, bits, group, dtype, False, outputs)
        assert low.form == f"packed-{bits}bit plain"


def test_a_shape_that_leaves_a_run_or_panel_over_is_refused() -> None:
    functions = compiled.Functions(4, torch.float32, 0.0, *[lambda *_: None] * 3)
    for outputs, inputs, groups in ((80, 64, 2), (96, 64, 4), (96, 80, 1)):
        with pytest.raises(ValueError, match="panels of 32 outputs and runs of 32"):
            compiled.CompiledLinear(
                functions, random_codes(outputs, inputs, 4), torch.ones(outputs, groups), None
            )


def test_what_is_not_finite_comes_out_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault must be seen where it arose: no rounding turns it into a number."""
    monkeypatch.delenv(native.SWITCH, raising=False)
    if native.compiler() is None:
        pytest.skip("no C compiler here")
    for dtype in (torch.float32, torch.bfloat16):
        low, _, _ = laid_out(True, 4, 32, dtype, False)
        x = torch.ones(2, 192, dtype=dtype)
        x[1, 7] = float("nan")
        y = low(x)
        assert bool(torch.isfinite(y[0]).all()) and bool(torch.isnan(y[1]).all())
        x[1, 7] = float("inf")
        assert not bool(torch.isfinite(low(x)[1]).any())


def program(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


def test_where_nothing_compiles_the_form_says_plain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A compiler that fails, one that writes no library, one whose function is wrong."""
    failing = program(tmp_path / "failing", "exit 1")
    silent = program(tmp_path / "silent", "exit 0")
    for compiler in (failing, silent):
        monkeypatch.setattr(native, "compiler", lambda compiler=compiler: str(compiler))
        assert fused._made.__wrapped__(2, torch.float32) is None
    monkeypatch.setattr(low_bit_forms, "fused_functions", lambda *_: None)
    assert laid_out(True, 2, 32, torch.float32, False)[0].form == "packed-2bit plain"


def test_a_function_that_multiplies_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any one of the three, whatever the others do."""
    monkeypatch.delenv(native.SWITCH, raising=False)
    if native.compiler() is None:
        pytest.skip("no C compiler here")
    monkeypatch.setattr(torch, "empty", torch.zeros)  # what it leaves is nobody's luck
    honest = native.functions
    for wrong in fused._SIGNATURES:

        def one_idle(*arguments: Any, wrong: str = wrong, **definitions: int) -> Any:
            return {**honest(*arguments, **definitions), wrong: lambda *_: None}

        monkeypatch.setattr(native, "functions", one_idle)
        assert fused._made.__wrapped__(2, torch.float32) is None


def test_a_compiler_that_lacks_a_flag_is_asked_again_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = next((found for name in native.COMPILERS if (found := shutil.which(name))), None)
    if real is None:
        pytest.skip("no C compiler here")
    picky = program(tmp_path / "picky", f'case "$*" in *openmp*) exit 1;; esac; exec {real} "$@"')
    monkeypatch.setattr(native, "compiler", lambda: str(picky))
    functions = fused._made.__wrapped__(4, torch.float32)
    assert functions is not None  # they were tried against float64 when made


def test_without_a_compiler_or_the_wish_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(native.subprocess, "run", never)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert fused.fused_functions(2, torch.float32) is None
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv(native.SWITCH, "off")
    assert fused.fused_functions(2, torch.float32) is None


def test_a_library_is_kept_and_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Made once; a damaged one is made again; other definitions are another library."""
    monkeypatch.delenv(native.SWITCH, raising=False)
    real = native.compiler()
    if real is None:
        pytest.skip("no C compiler here")
    runs = tmp_path / "runs"
    counting = program(tmp_path / "counting", f'echo x >> {runs}; exec {real} "$@"')
    monkeypatch.setattr(native, "compiler", lambda: str(counting))
    folder = tmp_path / "kept"
    monkeypatch.setattr(native, "_folder", folder)

    def times() -> int:
        return len(runs.read_text().split())

    def made(bits: int) -> bool:
        return fused._made.__wrapped__(bits, torch.float32) is not None

    assert made(2) and times() == 1
    (first,) = folder.iterdir()
    assert made(2) and times() == 1
    assert made(4) and times() == 2 and len(list(folder.iterdir())) == 2
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / first.name).write_bytes(b"not a library")
    monkeypatch.setattr(native, "_folder", damaged)
    assert made(2) and times() == 3 and (damaged / first.name).stat().st_size > 1_000
    monkeypatch.setattr(native, "_folder", runs)  # a file where the folder should be
    assert made(2) and times() == 4
