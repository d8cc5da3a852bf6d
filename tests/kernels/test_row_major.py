"""Dense weights as they lie, by a few rows in C, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from kernels import native
from kernels.linear import dispatch, row_major
from kernels.linear.row_major import IN_C_ROWS, RowMajorLinear, few_rows_product

LOST = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""Half a unit in the last place, of the product itself: sums are float32."""

in_c = pytest.mark.usefixtures("compiled")


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def row_major_linear(weight: Tensor, bias: Tensor | None = None) -> RowMajorLinear:
    few = few_rows_product(weight.dtype)
    assert few is not None
    return RowMajorLinear(few, functional.linear, weight, bias)


@in_c
@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(1, 32), (45, 160), (96, 576), (130, 32)], ids=str)
def test_a_few_rows(dtype: torch.dtype, shape: tuple[int, int], biased: bool) -> None:
    """Numbers of tiles of every kind, and what is left over beside them."""
    outputs, inputs = shape
    weight = numbers(outputs, inputs, dtype=dtype)
    bias = numbers(outputs, dtype=dtype, seed=1) if biased else None
    linear = row_major_linear(weight, bias)
    most = IN_C_ROWS[dtype]
    assert linear.form == f"row-major in C to {most} rows" and linear.function
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 13, most, most + 1):
        x = numbers(rows, inputs, dtype=dtype, seed=rows)
        true = x.double() @ weight.double().t() + (0 if bias is None else bias.double())
        y = linear(x)
        assert y.dtype == dtype and y.shape == (rows, outputs)
        error = (y.double() - true).abs()
        sums = x.double().abs() @ weight.double().abs().t()
        assert bool((error <= LOST[dtype] * true.abs() + 2e-6 * sums).all())


@in_c
@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads_gives_the_same_bits(threads: int) -> None:
    weight = numbers(45, 64, dtype=torch.bfloat16)
    linear, x = row_major_linear(weight), numbers(5, 64, dtype=torch.bfloat16)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        two = linear(x)
        torch.set_num_threads(threads)
        assert torch.equal(linear(x), two)
    finally:
        torch.set_num_threads(before)


@in_c
@pytest.mark.parametrize("dtype", LOST, ids=str)
def test_a_row_is_the_same_in_any_company(dtype: torch.dtype) -> None:
    """Whatever rows share its pass: a token does not change with its batch."""
    linear = row_major_linear(numbers(45, 96, dtype=dtype))
    x = numbers(11, 96, dtype=dtype, seed=2)
    alone = torch.cat([linear(row) for row in x.split(1)])
    for rows in range(2, 12):
        assert torch.equal(linear(x[:rows]), alone[:rows])


@in_c
def test_what_is_not_finite_stays_so() -> None:
    weight, x = numbers(9, 32, dtype=torch.bfloat16), numbers(3, 32, dtype=torch.bfloat16)
    x[1, 5] = float("nan")
    weight[4, 7] = float("inf")
    y = row_major_linear(weight)(x)
    assert bool(y[1].isnan().all()) and bool(y[0::2, 4].isinf().all())
    assert int(y.isfinite().sum()) == 16


@in_c
def test_rows_that_lie_apart_none_at_all_and_those_of_another_type() -> None:
    weight = numbers(40, 64, dtype=torch.bfloat16)
    linear, x = row_major_linear(weight), numbers(64, 6, dtype=torch.bfloat16).t()
    assert not x.is_contiguous()
    assert torch.equal(linear(x), linear(x.contiguous()))
    assert linear(x[:0]).shape == (0, 40)
    with pytest.raises(ValueError, match="rows of 40 numbers are no whole runs of 32"):
        row_major_linear(weight.t().contiguous()[:, :40])


@in_c
def test_the_address_of_a_weight_is_its_own() -> None:
    weight, bias = numbers(40, 64, dtype=torch.float16), numbers(40, dtype=torch.float16)
    addresses = (weight.data_ptr(), None, None, bias.data_ptr())
    assert row_major_linear(weight, bias).addresses == addresses
    assert row_major_linear(weight, bias).nbytes == (40 * 64 + 40) * 2


@in_c
def test_a_wrong_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", torch.zeros)  # what it leaves is nobody's luck
    honest = native.functions

    def off(*arguments: Any, **definitions: int) -> Any:
        ((name, function),) = honest(*arguments, **definitions).items()

        def without_bias(*given: Any) -> None:
            function(*given[:4], None, *given[5:])

        return {name: without_bias}

    for wrong in (off, lambda *_, **__: {"row_major_product": lambda *_: None}):
        monkeypatch.setattr(native, "functions", wrong)
        assert row_major._native.__wrapped__(torch.bfloat16) is None


def test_where_nothing_compiles_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = numbers(512, 544, dtype=torch.bfloat16)
    monkeypatch.setattr(native, "compiler", lambda: None)
    assert few_rows_product(torch.bfloat16) is None and not dispatch.reads_rows(torch.bfloat16)
    assert "row-major" not in dispatch.resolve(weight).form


@in_c
@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize("widens", [True, False])
def test_weights_are_read_so_where_they_would_be_widened(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, widens: bool
) -> None:
    """Rows that are no whole runs are torch's."""
    whole, odd = numbers(512, 544, dtype=dtype), numbers(512, 540, dtype=dtype)
    monkeypatch.setattr(dispatch, "widens", lambda _: widens)
    assert dispatch.reads_rows(dtype) is widens
    assert ("row-major" in dispatch.resolve(whole).form) is widens
    assert "row-major" not in dispatch.resolve(odd).form
    x = numbers(70, 544, dtype=dtype)
    truth = x.double() @ whole.double().t()
    error = (dispatch.resolve(whole)(x).double() - truth).abs().max() / truth.abs().max()
    assert float(error) < {torch.float32: 1e-5, torch.bfloat16: 1e-2}.get(dtype, 2e-3)
