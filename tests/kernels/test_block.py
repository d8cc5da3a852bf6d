"""The halves of a layer around attention, in one call each, against float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from kernels import native
from kernels.block import few_rows
from kernels.block.few_rows import after_attention, before_attention
from kernels.linear.compiled import CompiledLinear
from kernels.linear.fused import fused_functions
from kernels.linear.low_bit_forms import make_low_bit
from kernels.linear.plain import PlainLinear
from kernels.linear.row_major import RowMajorLinear, few_rows_product
from kernels.norm.rms_norm import RMSNorm
from kernels.rope.rotation import Rotation

pytestmark = pytest.mark.usefixtures("compiled")

LOST = {torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}
"""Of the largest value; rows are rounded to the type between any two steps."""

HEADS, KV, WIDTH, HIDDEN, INNER = 6, 1, 32, 96, 160
EPS = 1e-5


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def matrix(
    outputs: int, inputs: int, bits: int, dtype: torch.dtype, biased: bool = False
) -> CompiledLinear | RowMajorLinear:
    if bits == 16:
        weight = numbers(outputs, inputs, seed=outputs).to(dtype) / 8
        bias = numbers(outputs, seed=bits).to(dtype) if biased else None
        few = few_rows_product(dtype)
        assert few is not None
        return RowMajorLinear(few, functional.linear, weight, bias)
    generator = torch.Generator().manual_seed(outputs + bits)
    codes = torch.randint(0, 1 << bits, (outputs, inputs), dtype=torch.uint8, generator=generator)
    scale = (torch.rand(outputs, inputs // 32, generator=generator) + 0.5) / (1 << bits) / 3
    bias = numbers(outputs, seed=bits).to(dtype) if biased else None
    made = make_low_bit(codes, scale, scale / 2, bits=bits, dtype=dtype, form="packed", bias=bias)
    assert isinstance(made, CompiledLinear)
    return made


def product(linear: CompiledLinear | RowMajorLinear, x: torch.Tensor) -> torch.Tensor:
    """In float64, by the weight that its codes stand for; only that is the form's own word."""
    weight = linear.weight if isinstance(linear, RowMajorLinear) else linear.dense()
    y = x @ weight.double().t()
    return y if linear.bias is None else y + linear.bias.double()


def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * weight.double()


def close(found: torch.Tensor, true: torch.Tensor, dtype: torch.dtype) -> bool:
    return float((found.double() - true).abs().max()) <= LOST[dtype] * float(true.abs().max())


@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize("bits", [4, 16])
@pytest.mark.parametrize("rows", [1, 2, 5, 16])
def test_before_attention(dtype: torch.dtype, bits: int, rows: int) -> None:
    stream, weight = numbers(rows, HIDDEN, seed=1) * 5, numbers(HIDDEN, seed=2)
    qkv = matrix((HEADS + 2 * KV) * WIDTH, HIDDEN, bits, dtype, biased=True)
    half = before_attention(RMSNorm(weight, EPS, dtype), qkv, HEADS + KV, WIDTH)
    assert half is not None
    positions = torch.arange(rows) * 700 + 3
    frequencies = 10_000.0 ** (-torch.arange(WIDTH // 2) / (WIDTH // 2))
    kept = stream.clone()
    turned, value = half(stream, Rotation.at(positions, frequencies))
    assert turned.dtype == value.dtype == dtype and torch.equal(stream, kept)
    vectors = product(qkv, normed(stream.double(), weight)).view(rows, HEADS + 2 * KV, WIDTH)
    angle = (positions[:, None].float() * frequencies).double()[:, None]
    first, second = vectors[:, : HEADS + KV].chunk(2, dim=-1)
    true = (first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin())
    assert close(turned, torch.cat(true, -1), dtype)
    assert close(value, vectors[:, HEADS + KV :], dtype)


@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize("bits", [(8, 3, 2), (16, 16, 16), (4, 16, 8)], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 5, 16])
def test_after_attention(dtype: torch.dtype, bits: tuple[int, int, int], rows: int) -> None:
    """Each matrix brings its own width along; 16 is the type's own."""
    stream, weight = numbers(rows, HIDDEN, seed=1) * 5, numbers(HIDDEN, seed=2)
    attended = numbers(rows, HEADS * WIDTH, seed=3).to(dtype)
    o = matrix(HIDDEN, HEADS * WIDTH, bits[0], dtype)
    gate_up = matrix(2 * INNER, HIDDEN, bits[1], dtype)
    down = matrix(HIDDEN, INNER, bits[2], dtype)
    half = after_attention(RMSNorm(weight, EPS, dtype), o, gate_up, down)
    assert half is not None
    wide = stream.double() + product(o, attended.double())
    gate, up = product(gate_up, normed(wide, weight)).chunk(2, dim=-1)
    true = wide + product(down, gate / (1 + torch.exp(-gate)) * up)
    half(attended, stream)
    assert close(stream, true, dtype)
    stream[0, 3] = float("nan")
    half(attended, stream)
    assert bool(torch.isnan(stream[0]).all()) and not bool(torch.isnan(stream[1:]).any())


def test_only_compiled_matrices_that_take_rows_as_they_are() -> None:
    norm = RMSNorm(torch.ones(HIDDEN), EPS, torch.float32)
    qkv = matrix(96, HIDDEN, 4, torch.float32)
    assert before_attention(norm, qkv, 2, 32) is not None
    assert before_attention(norm, qkv, 2, 48) is None, "halves of heads are no whole vectors"
    assert before_attention(norm, PlainLinear(torch.ones(96, HIDDEN)), 2, 32) is None
    functions = fused_functions(4, torch.float32)
    assert functions is not None
    codes, scale = torch.ones(96, HIDDEN, dtype=torch.uint8), torch.ones(96, 3)
    rounding = CompiledLinear(functions, codes, scale, None, activations=8)
    assert before_attention(norm, rounding, 2, 32) is None
    other = matrix(96, HIDDEN, 4, torch.bfloat16)
    assert before_attention(norm, other, 2, 32) is None
    assert after_attention(norm, qkv, qkv, PlainLinear(torch.ones(96, HIDDEN))) is None


def test_wrong_functions_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Either of the two, whatever the other does."""
    fused_functions(4, torch.float32)
    few_rows.rotation.is_native(32, torch.float32)
    monkeypatch.setattr(torch, "empty", torch.zeros)  # what it leaves is nobody's luck
    honest = native.functions
    for wrong in few_rows._SIGNATURES:

        def one_idle(*arguments: object, wrong: str = wrong) -> dict[str, object]:
            return {**honest(*arguments), wrong: lambda *_: None}  # type: ignore[arg-type]

        monkeypatch.setattr(native, "functions", one_idle)
        assert few_rows._native.__wrapped__(torch.float32, 4) is None
    monkeypatch.setattr(native, "functions", honest)
    assert few_rows._native.__wrapped__(torch.float32, 4) is not None
