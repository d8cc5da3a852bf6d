"""Every low-bit form against float64 on weights dequantised here; bytes against the formula."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from engine.weight_format import Form, Scheme, choose_form, lies_blocked, matrix_bytes
from kernels.linear import int4_layout, int8, int8_blocked, int8_plain, low_bit_forms
from kernels.linear.crossover import CrossoverLinear, LowBit
from kernels.linear.dispatch import widens
from kernels.linear.int4_group import Int4GroupLinear
from kernels.linear.int8_blocked import BlockedInt8
from kernels.linear.low_bit_forms import (
    BLOCKED,
    FORMS,
    FUSED_FIRST,
    WIDENED,
    available_low_bit_forms,
    make_low_bit,
)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
PRODUCT = {torch.float32: 2e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
WEIGHT = {torch.float32: 1e-6, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}
"""Largest error relative to the largest true value; a weight is rounded twice at most."""

ROWS = (1, 2, 3, 5, 9, 17, 70)


@dataclass(frozen=True)
class Case:
    form: str
    outputs: int
    inputs: int
    bits: int
    group: int
    symmetric: bool = False
    activations: int = 16

    @property
    def scheme(self) -> Scheme:
        return Scheme(self.bits, self.group, self.symmetric, self.activations)


CASES = [
    Case("int8-row", 33, 77, 8, 77, True),
    Case("int8-row", 64, 128, 8, 128, True),
    Case("int8-row", 2048, 512, 8, 512, True),
    Case("int8-row", 2049, 520, 8, 520, True),
    Case("int4-group", 32, 64, 4, 32),
    Case("int4-group", 64, 128, 4, 64, True),
    Case("int4-group", 96, 128, 4, 32),
    Case("int4-group", 160, 256, 4, 256),
    Case("int4-group", 1056, 128, 4, 128),
    *(Case("packed", 33, 77, bits, 11) for bits in (8, 4, 3, 2)),
    *(Case("packed", 48, 96, bits, 32, symmetric=True) for bits in (3, 2)),
    *(Case("packed", 48, 96, bits, 32) for bits in (3, 2)),
    Case("packed", 1, 7, 3, 7, True),
    Case("packed", 5, 1, 2, 1),
    Case("packed", 48, 96, 4, 48),
    Case("packed", 700, 400, 3, 16),
]


@dataclass(frozen=True)
class Weight:
    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    bias: Tensor
    truth: Tensor
    """float64 [N, K]."""

    def laid_out(self, case: Case, dtype: torch.dtype, biased: bool = False) -> LowBit:
        return make_low_bit(
            self.codes,
            self.scale,
            self.zero,
            bits=case.bits,
            dtype=dtype,
            form=case.form,
            bias=self.bias if biased else None,
            activations=case.activations,
            compiled=False,
        )


def random_weight(case: Case) -> Weight:
    """Codes that use both ends of the range, scales and zeros rounded to bfloat16."""
    generator = torch.Generator().manual_seed(case.outputs * case.inputs + case.bits)
    shape, groups = (case.outputs, case.inputs), case.inputs // case.group
    codes = torch.randint(0, 1 << case.bits, shape, dtype=torch.uint8, generator=generator)
    codes[0, 0], codes[-1, -1] = 0, (1 << case.bits) - 1

    def numbers(low: float, high: float) -> Tensor:
        spread = torch.rand(case.outputs, groups, generator=generator) * (high - low) + low
        return spread.to(torch.bfloat16).to(torch.float32)

    scale, zero = numbers(0.005, 0.02), None if case.symmetric else numbers(-0.05, 0.05)
    middle = 2 ** (case.bits - 1)
    truth = torch.empty(shape, dtype=torch.float64)
    for column in range(case.inputs):
        group = column // case.group
        truth[:, column] = scale[:, group].double() * (codes[:, column].double() - middle)
        if zero is not None:
            truth[:, column] += zero[:, group].double()
    bias = torch.randn(case.outputs, generator=generator).to(torch.bfloat16).to(torch.float32)
    return Weight(codes, scale, zero, bias, truth)


def rows_of(count: int, case: Case, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, case.inputs, generator=generator).to(dtype)


def relative_error(got: Tensor, truth: Tensor) -> float:
    return float((got.double() - truth).abs().max() / truth.abs().max())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_form_gives_the_product(case: Case, dtype: torch.dtype) -> None:
    weight = random_weight(case)
    for biased in (False, True):
        low = weight.laid_out(case, dtype, biased)
        assert low.form.startswith(case.form)
        for count in ROWS:
            x = rows_of(count, case, dtype)
            truth = x.double() @ weight.truth.T + (weight.bias.double() if biased else 0)
            y = low(x)
            assert y.dtype == dtype and y.shape == (count, case.outputs)
            bfloat16 = case.form == "int4-group" and dtype != torch.bfloat16
            limit = PRODUCT[torch.bfloat16 if bfloat16 else dtype]
            assert relative_error(y, truth) < limit, (low.form, count, biased)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_form_reads_back_as_a_matrix_and_by_rows(case: Case, dtype: torch.dtype) -> None:
    weight = random_weight(case)
    low = weight.laid_out(case, dtype)
    dense = low.dense()
    assert dense.dtype == dtype and dense.shape == weight.truth.shape
    assert relative_error(dense, weight.truth) <= WEIGHT[dtype]
    ids = torch.tensor([case.outputs - 1, 0, case.outputs // 2, 0])
    assert relative_error(low.rows(ids), weight.truth[ids]) <= WEIGHT[dtype]
    assert low.rows(ids[:0]).shape == (0, case.inputs)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_bytes_held_are_the_bytes_of_the_formula(case: Case, dtype: torch.dtype) -> None:
    weight = random_weight(case)
    size = torch.empty(0, dtype=dtype).element_size()
    form: Form = case.form  # type: ignore[assignment]
    forms = available_low_bit_forms(dtype)
    blocked = lies_blocked(form, case.outputs, case.inputs, forms)
    priced = matrix_bytes(case.scheme, case.outputs, case.inputs, form, size, blocked)
    assert weight.laid_out(case, dtype).nbytes == priced
    assert weight.laid_out(case, dtype, biased=True).nbytes == priced + case.outputs * size


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("outputs", [96, 2048])
def test_w8a8_rounds_each_token_by_its_own_largest_value(outputs: int, dtype: torch.dtype) -> None:
    """The second row is fifty times the first: a shared scale would lose the first."""
    case = Case("int8-dynamic", outputs, 512, 8, 512, True, activations=8)
    weight = random_weight(case)
    low = weight.laid_out(case, dtype)
    for count in (1, 2, 12):
        x = rows_of(count, case, dtype)
        x[1::2] *= 50
        step = x.double().abs().amax(dim=1, keepdim=True) / 127
        seen = (x.double() / step).round() * step
        truth = seen @ weight.truth.T
        for row in range(count):
            assert relative_error(low(x)[row], truth[row]) < 2 * PRODUCT[dtype], low.form
        assert relative_error(seen, x.double()) > 1e-3  # it is another product than the whole one


def test_int4_says_where_it_rounds_activations() -> None:
    case = Case("int4-group", 64, 128, 4, 64)
    weight = random_weight(case)
    assert weight.laid_out(case, torch.bfloat16).form == "int4-group g64"
    assert weight.laid_out(case, torch.float32).form == "int4-group g64 bfloat16"


@pytest.mark.parametrize("case", [case for case in CASES if case.form == "int4-group"], ids=str)
def test_an_unknown_int4_layout_is_read_through_the_product(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int4_layout, "layout_of", lambda outputs: None)
    weight = random_weight(case)
    low = weight.laid_out(case, torch.bfloat16)
    assert low.form.endswith("decoded by its product")
    assert relative_error(low.dense(), weight.truth) <= WEIGHT[torch.bfloat16]
    ids = torch.tensor([1, case.outputs - 1])
    assert relative_error(low.rows(ids), weight.truth[ids]) <= WEIGHT[torch.bfloat16]


def test_without_onednn_the_head_is_multiplied_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("int8-row", 2048, 512, 8, 512, True)
    weight = random_weight(case)

    def refuse(codes: Tensor, pieces: int) -> BlockedInt8:
        raise RuntimeError("no such product")

    monkeypatch.setattr(int8, "BlockedInt8", refuse)
    low = weight.laid_out(case, torch.bfloat16)
    assert low.form == "int8-row torch"
    x = rows_of(3, case, torch.bfloat16)
    assert relative_error(low(x), x.double() @ weight.truth.T) < PRODUCT[torch.bfloat16]


@pytest.mark.parametrize("count", [1, 30])
def test_where_bytes_saturate_activations_are_only_rounded(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8_plain, "int_mm_is_exact", lambda: False)
    for case in (
        Case("int8-dynamic", 96, 128, 8, 128, True, activations=8),
        Case("int8-row", 96, 128, 8, 128, True),
        Case("int8-row", 96, 77, 8, 77, True),
    ):
        weight = random_weight(case)
        x = rows_of(count, case, torch.float32)
        step = x.double().abs().amax(dim=1, keepdim=True) / 127
        seen = (x.double() / step).round() * step if case.activations == 8 else x.double()
        got = weight.laid_out(case, torch.float32)(x)
        assert relative_error(got, seen @ weight.truth.T) < PRODUCT[torch.float32]


@pytest.mark.parametrize("outputs", [96, 2048])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("form", ["int8-row", "int8-dynamic"])
def test_a_value_that_is_no_number_is_not_hidden(outputs: int, bad: float, form: str) -> None:
    case = Case(form, outputs, 512, 8, 512, True, 8 if form == "int8-dynamic" else 16)
    low = random_weight(case).laid_out(case, torch.bfloat16)
    for count in (1, 20):
        x = rows_of(count, case, torch.bfloat16)
        x[0, 3] = bad
        y = low(x)
        assert not bool(torch.isfinite(y[0]).any())
        assert bool(torch.isfinite(y[1:]).all())


def test_rows_of_zeros_give_zeros() -> None:
    for case in (CASES[2], CASES[1], Case("int8-dynamic", 96, 128, 8, 128, True, 8)):
        low = random_weight(case).laid_out(case, torch.bfloat16)
        for count in (1, 12):
            x = torch.zeros(count, case.inputs, dtype=torch.bfloat16)
            assert float(low(x).abs().max()) == 0.0


@pytest.mark.parametrize("case", [CASES[1], CASES[6], CASES[-1]], ids=str)
def test_no_rows_are_refused(case: Case) -> None:
    low = random_weight(case).laid_out(case, torch.float32)
    with pytest.raises(ValueError, match="at least one row"):
        low(torch.empty(0, case.inputs))


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (Case("int8-row", 32, 64, 8, 32, True), "one scale a row"),
        (Case("int8-row", 32, 64, 8, 64, False), "symmetric"),
        (Case("int8-dynamic", 32, 64, 4, 64, True), "8 bits"),
        (Case("int4-group", 32, 64, 3, 32), "4 bits"),
        (Case("int4-group", 32, 64, 4, 16), "groups of"),
        (Case("int4-group", 33, 64, 4, 32), "33 rows"),
        (Case("int5-group", 32, 64, 4, 32), "legal: int8-row"),
    ],
    ids=str,
)
def test_what_a_form_cannot_hold_is_refused(case: Case, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        random_weight(case).laid_out(case, torch.float32)


def test_groups_that_do_not_divide_and_codes_too_wide_are_refused() -> None:
    codes = torch.full((2, 10), 9, dtype=torch.uint8)

    def packed(bits: int, groups: int) -> LowBit:
        scale, dtype = torch.ones(2, groups), torch.float32
        return make_low_bit(
            codes, scale, None, bits=bits, dtype=dtype, form="packed", compiled=False
        )

    with pytest.raises(ValueError, match="3 groups do not divide rows of 10"):
        packed(4, 3)
    with pytest.raises(ValueError, match="a code of 9 does not fit into 3 bits"):
        packed(3, 1)
    with pytest.raises(ValueError, match="not 5"):
        packed(5, 1)


def test_forms_available_are_those_whose_product_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(Int4GroupLinear):
        def __call__(self, x: Tensor) -> Tensor:
            return super().__call__(x) * 1.05

    def fails(*arguments: object) -> Int4GroupLinear:
        raise RuntimeError("no such kernel")

    for dtype in DTYPES:
        assert "packed" in available_low_bit_forms(dtype)
        assert set(available_low_bit_forms(dtype)) <= {*FORMS, BLOCKED, WIDENED, FUSED_FIRST}
        assert (BLOCKED in available_low_bit_forms(dtype)) == int8_blocked.works()
        assert (WIDENED in available_low_bit_forms(dtype)) == widens(dtype)
    find = available_low_bit_forms.__wrapped__
    had = set(find(torch.bfloat16))
    for stand_in in (Wrong, fails):
        monkeypatch.setattr(low_bit_forms, "Int4GroupLinear", stand_in)
        assert set(find(torch.bfloat16)) == had - {"int4-group"}


@pytest.mark.parametrize(("instructions", "first"), [("AVX2", True), ("AVX512", False)])
def test_the_fused_product_comes_first_where_torch_s_own_wait_for_arithmetic(
    monkeypatch: pytest.MonkeyPatch, instructions: str, first: bool
) -> None:
    find = available_low_bit_forms.__wrapped__
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: instructions)
    monkeypatch.setattr(low_bit_forms, "fused_functions", lambda *_: object())
    assert (FUSED_FIRST in find(torch.bfloat16)) == (FUSED_FIRST in find(torch.float32)) == first
    assert FUSED_FIRST not in find(torch.float16)
    monkeypatch.setattr(low_bit_forms, "fused_functions", lambda *_: None)  # nothing compiles
    assert FUSED_FIRST not in find(torch.bfloat16)


def test_the_engines_choice_can_be_laid_out() -> None:
    """Whatever form is chosen for a scheme, the maker takes the weight."""
    forms = available_low_bit_forms(torch.bfloat16)
    for bits in (8, 4, 3, 2):
        for group in (-1, 16, 32, 96, 192):
            for symmetric in (False, True):
                scheme = Scheme(bits, group, symmetric)
                whole = 192 if group == -1 else group
                form = choose_form(scheme, 64, 192, forms)
                case = Case(form, 64, 192, bits, whole, symmetric)
                weight = random_weight(case)
                low = weight.laid_out(case, torch.bfloat16)
                assert relative_error(low.dense(), weight.truth) <= WEIGHT[torch.bfloat16]


@pytest.mark.parametrize("case", [CASES[1], CASES[6], CASES[-1]], ids=str)
def test_above_its_crossover_the_dense_form_multiplies(case: Case) -> None:
    weight = random_weight(case)
    low = weight.laid_out(case, torch.float32, biased=True)

    class Counting:
        form, nbytes, bias = low.form, low.nbytes, low.bias
        dense_calls = 0

        def __call__(self, x: Tensor) -> Tensor:
            return low(x)

        def dense(self) -> Tensor:
            self.dense_calls += 1
            return low.dense()

        def rows(self, ids: Tensor) -> Tensor:
            return low.rows(ids)

    counting = Counting()
    crossing = CrossoverLinear(counting, 4)
    for count, calls in ((1, 0), (4, 0), (5, 1), (40, 2)):
        x = rows_of(count, case, torch.float32)
        truth = x.double() @ weight.truth.T + weight.bias.double()
        limit = PRODUCT[torch.bfloat16 if case.form == "int4-group" else torch.float32]
        assert relative_error(crossing(x), truth) < limit
        assert counting.dense_calls == calls
    never = CrossoverLinear(counting, 0)
    never(rows_of(40, case, torch.float32))
    assert counting.dense_calls == 2
    assert never.form == low.form and crossing.form == f"{low.form}, dense above 4 rows"
    assert CrossoverLinear(low, 1).form.endswith("dense above 1 row")
    assert crossing.nbytes == low.nbytes
    with pytest.raises(ValueError, match="0 for never"):
        CrossoverLinear(low, -1)
