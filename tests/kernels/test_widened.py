"""Products in 16 bits on a processor that multiplies in 32: a few rows in C, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kernels import native
from kernels.linear import widened
from kernels.linear.widened import IN_C_ROWS, WidenedLinear, few_rows_product

LOST = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""Half a unit in the last place, of the product itself: sums are float32."""

in_c = pytest.mark.usefixtures("compiled")


def numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@in_c
@pytest.mark.parametrize("dtype", LOST, ids=str)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(1, 32), (45, 160), (96, 576), (130, 32)], ids=str)
def test_a_few_rows(dtype: torch.dtype, shape: tuple[int, int], biased: bool) -> None:
    """Numbers of tiles of every kind, and what is left over beside them."""
    outputs, inputs = shape
    weight = numbers(outputs, inputs, dtype=dtype)
    bias = numbers(outputs, dtype=dtype, seed=1) if biased else None
    linear = WidenedLinear(weight, bias)
    assert linear.form == f"widened, in C to {IN_C_ROWS} rows" and linear.function is not None
    for rows in (1, 2, 3, 4, 5, 6, 7, 8, 13, IN_C_ROWS, IN_C_ROWS + 1):
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
    linear, x = WidenedLinear(weight), numbers(5, 64, dtype=torch.bfloat16)
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
    linear = WidenedLinear(numbers(45, 96, dtype=dtype))
    x = numbers(11, 96, dtype=dtype, seed=2)
    alone = torch.cat([linear(row) for row in x.split(1)])
    for rows in range(2, 12):
        assert torch.equal(linear(x[:rows]), alone[:rows])


@in_c
def test_what_is_not_finite_stays_so() -> None:
    weight, x = numbers(9, 32, dtype=torch.bfloat16), numbers(3, 32, dtype=torch.bfloat16)
    x[1, 5] = float("nan")
    weight[4, 7] = float("inf")
    y = WidenedLinear(weight)(x)
    assert bool(y[1].isnan().all()) and bool(y[0::2, 4].isinf().all())
    assert int(y.isfinite().sum()) == 16


@in_c
def test_rows_that_lie_apart_none_at_all_and_those_of_another_type() -> None:
    weight = numbers(40, 64, dtype=torch.bfloat16)
    linear, x = WidenedLinear(weight), numbers(64, 6, dtype=torch.bfloat16).t()
    assert not x.is_contiguous()
    assert torch.equal(linear(x), linear(x.contiguous()))
    assert linear(x[:0]).shape == (0, 40)
    assert WidenedLinear(weight.t().contiguous()[:, :40]).function is None, "40 are no whole runs"


@in_c
def test_the_address_of_a_weight_is_its_own() -> None:
    weight, bias = numbers(40, 64, dtype=torch.float16), numbers(40, dtype=torch.float16)
    addresses = (weight.data_ptr(), None, None, bias.data_ptr())
    assert WidenedLinear(weight, bias).addresses == addresses
    assert WidenedLinear(weight, bias).nbytes == (40 * 64 + 40) * 2


@in_c
def test_a_wrong_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "empty", torch.zeros)  # what it leaves is nobody's luck
    honest = native.functions

    def off(*arguments: Any, **definitions: int) -> Any:
        ((name, function),) = honest(*arguments, **definitions).items()

        def without_bias(*given: Any) -> None:
            function(*given[:4], None, *given[5:])

        return {name: without_bias}

    for wrong in (off, lambda *_, **__: {"widened_product": lambda *_: None}):
        monkeypatch.setattr(native, "functions", wrong)
        assert widened._native.__wrapped__(torch.bfloat16) is None


def test_without_a_compiler_or_in_another_type_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert widened._native.__wrapped__(torch.float32) is None
    monkeypatch.setattr(native, "compiler", lambda: None)
    assert few_rows_product(torch.bfloat16) is None
    linear = WidenedLinear(numbers(40, 64, dtype=torch.bfloat16))
    assert linear.function is None and "plain" in linear.form
