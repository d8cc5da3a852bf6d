"""Which form multiplies by a weight: decided once, when the weight is loaded."""

from __future__ import annotations

from functools import cache
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from kernels.linear.packed import PackedLinear
from kernels.linear.plain import PlainLinear
from kernels.linear.reference import linear as reference
from kernels.linear.row_major import RowMajorLinear, few_rows_product, takes
from kernels.linear.widened import WidenedLinear, widened_product, worth_widening

Form = Literal["plain", "packed"]

_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}
"""Largest error against the reference, relative to the largest true value. float32 sums in another
order; bfloat16 keeps 8 bits of the result and float16 11."""


class Linear(Protocol):
    """A weight [N, K] ready to multiply rows; `form` says which kernel will run."""

    @property
    def form(self) -> str: ...

    @property
    def nbytes(self) -> int: ...

    def __call__(self, x: Tensor) -> Tensor: ...


def resolve(weight: Tensor, bias: Tensor | None = None) -> Linear:
    """The fastest form that gives the right product for this weight on this machine.

    Where weights are read as they lie, those that can be are. Else the packed form is taken where
    packing works *and* its product of a probe row equals the reference: a capability flag can lie,
    a product cannot.
    """
    if weight.device.type == "cpu":
        widened = widens(weight.dtype) and worth_widening(*weight.shape)
        lies_so = reads_rows(weight.dtype) and takes(weight.shape[1])
        few = few_rows_product(weight.dtype) if lies_so else None
        if few is not None:
            many = widened_product if widened else functional.linear
            return RowMajorLinear(few, many, weight.contiguous(), bias)
        packed = _try_packed(weight, bias)
        if packed is not None:
            return packed
        if widened:
            return WidenedLinear(weight.contiguous(), bias)
    return PlainLinear(weight.contiguous(), bias)


def reads_rows(dtype: torch.dtype) -> bool:
    """Whether dense weights stay as they lie here, for few rows to be multiplied in C: those in 16
    bits that torch would widen, where that can be had."""
    return widens(dtype) and few_rows_product(dtype) is not None


@cache
def widens(dtype: torch.dtype) -> bool:
    """Whether this processor has no product of its own in `dtype`, and multiplies in float32."""
    return dtype in (torch.bfloat16, torch.float16) and "packed" not in available_forms(dtype)


def dense_product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b by a weight that lives for one call: [T, K], [N, K], [N] -> [T, N]."""
    on_cpu = weight.device.type == "cpu"
    if on_cpu and widens(weight.dtype) and worth_widening(*weight.shape):
        return widened_product(x, weight, bias)
    return functional.linear(x, weight, bias)


def available_forms(dtype: torch.dtype) -> tuple[Form, ...]:
    """The forms this machine runs for `dtype`, found by trying them on a small weight."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 40, generator=generator).to(dtype)
    return ("plain", "packed") if _try_packed(weight, None) else ("plain",)


def _try_packed(weight: Tensor, bias: Tensor | None) -> PackedLinear | None:
    tolerance = _TOLERANCE.get(weight.dtype)
    if tolerance is None:
        return None
    generator = torch.Generator().manual_seed(weight.shape[1])
    probe = torch.randn(1, weight.shape[1], generator=generator).to(weight.dtype)
    try:
        packed = PackedLinear(weight, bias)
        product = packed(probe)
    except RuntimeError:
        return None
    truth = reference(probe, weight, bias)
    error = (product.float() - truth.float()).abs().max()
    return packed if bool(error <= tolerance * truth.float().abs().max()) else None
