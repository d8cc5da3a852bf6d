"""The linear forms against float64, over dtypes and odd shapes; dispatch that cannot be fooled."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.linear import dispatch
from kernels.linear.dispatch import available_forms, resolve, widens
from kernels.linear.packed import PackedLinear
from kernels.linear.plain import PlainLinear
from kernels.linear.reference import linear
from kernels.linear.widened import FEW_ROWS, WidenedLinear, rows_of_a_piece

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
SHAPES = [(5, 123), (96, 64), (960, 576), (1, 7), (33, 1)]  # N, K
ROWS = [1, 2, 3, 5, 17, 130]


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def relative_error(got: Tensor, truth: Tensor) -> float:
    return float((got.double() - truth).abs().max() / truth.abs().max())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_every_form_gives_the_product(
    dtype: torch.dtype, shape: tuple[int, int], biased: bool
) -> None:
    weight = random(*shape, dtype=dtype)
    bias = random(shape[0], dtype=dtype, seed=1) if biased else None
    forms = [PlainLinear(weight, bias), resolve(weight, bias)]
    forms += [WidenedLinear(weight, bias)] if dtype != torch.float32 else []
    for rows in ROWS:
        x = random(rows, shape[1], dtype=dtype, seed=rows)
        truth = x.double() @ weight.double().T
        if bias is not None:
            truth = truth + bias.double()
        assert relative_error(linear(x, weight, bias), truth) < TOLERANCE[dtype]
        for form in forms:
            product = form(x)
            assert product.dtype == dtype and product.shape == (rows, shape[0])
            assert relative_error(product, truth) < TOLERANCE[dtype], form.form


def test_the_form_resolved_is_one_the_machine_has() -> None:
    for dtype in TOLERANCE:
        packs = "packed" in available_forms(dtype)
        form = resolve(random(48, 40, dtype=dtype)).form
        assert widens(dtype) is (dtype != torch.float32 and not packs)
        assert form == ("onednn-packed" if packs else "plain")  # too small to widen
        large = resolve(random(512, 512, dtype=dtype)).form
        unpacked = f"plain, float32 above {FEW_ROWS} rows" if widens(dtype) else "plain"
        assert large == ("onednn-packed" if packs else unpacked)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_widened_product_is_summed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    """One of a large and many small: sums in 8 bits would lose every small one."""
    inputs = 256
    x = torch.ones(6, inputs, dtype=dtype)
    weight = torch.full((1100, inputs), 2.0**-9, dtype=dtype)  # two pieces
    weight[:, 0] = 1.0
    truth = 1 + (inputs - 1) * 2.0**-9
    assert torch.equal(WidenedLinear(weight)(x), torch.full((6, 1100), truth).to(dtype))
    assert rows_of_a_piece(inputs) < 1100 < 2 * rows_of_a_piece(inputs)


def test_a_weight_made_dense_is_multiplied_as_the_machine_multiplies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, weight = random(5, 400, dtype=torch.bfloat16), random(700, 400, dtype=torch.bfloat16)
    truth = x.double() @ weight.double().T
    for answer in (True, False):
        monkeypatch.setattr(dispatch, "widens", lambda _, answer=answer: answer)
        assert relative_error(dispatch.dense_product(x, weight), truth) < TOLERANCE[torch.bfloat16]


def test_a_packed_form_that_multiplies_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(PackedLinear):
        def __call__(self, x: Tensor) -> Tensor:
            return super().__call__(x) * 1.01

    monkeypatch.setattr(dispatch, "PackedLinear", Wrong)
    assert resolve(random(48, 40, dtype=torch.float32)).form == "plain"
    assert available_forms(torch.float32) == ("plain",)


def test_where_packing_fails_the_form_says_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(weight: Tensor, bias: Tensor | None) -> PackedLinear:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(dispatch, "PackedLinear", refuse)
    assert resolve(random(48, 40, dtype=torch.float32)).form == "plain"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bytes_are_the_weights_own_where_blocks_fit(dtype: torch.dtype) -> None:
    weight, bias = random(192, 64, dtype=dtype), random(192, dtype=dtype)
    own = (192 * 64 + 192) * weight.element_size()
    assert PlainLinear(weight, bias).nbytes == own
    assert resolve(weight, bias).nbytes == own


def test_padding_of_the_packed_layout_is_in_the_account() -> None:
    if "packed" not in available_forms(torch.float32):
        pytest.skip("no packed form here")
    assert PackedLinear(random(5, 123, dtype=torch.float32)).nbytes > 5 * 123 * 4
