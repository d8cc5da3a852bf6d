"""Which low-bit form a quantised weight takes, and which forms this machine has.

A form is one of four words (bytes and choice: whoever makes the weight decides):

    int8-row      8 bits, symmetric, a scale a row
    int8-dynamic  the same, with activations quantised to 8 bits
    int4-group    4 bits in groups of 32, 64, 128 or 256
    packed        any width, any group
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from kernels.linear import int8_blocked
from kernels.linear.compiled import CompiledLinear, takes
from kernels.linear.crossover import LowBit
from kernels.linear.dispatch import widens
from kernels.linear.fused import fused_functions
from kernels.linear.int4_group import Int4GroupLinear
from kernels.linear.int8 import Int8DynamicLinear, Int8RowLinear
from kernels.linear.low_bit import LowBitLinear
from kernels.linear.reference import dequantise, linear

FORMS = ("int8-row", "int4-group", "int8-dynamic", "packed")

BLOCKED, WIDENED, FUSED_FIRST = "int8-blocked", "widened", "fused-first"
"""Named beside them: where large int8 matrices lie in oneDNN's layout; where dense products of the
dtype run in float32; where the fused product of packed codes is the fastest of 8 and 4 bits too."""

_TOLERANCE = {
    "int8-row": {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3},
    "int4-group": {torch.float32: 2e-2, torch.bfloat16: 2e-2, torch.float16: 2e-2},
    "int8-dynamic": {torch.float32: 2e-2, torch.bfloat16: 3e-2, torch.float16: 2e-2},
}
"""Largest error against the reference, relative to the largest true value. int4 products run in
bfloat16; W8A8 loses up to half a step of 1 / 127 of an activation."""


def make_low_bit(
    codes: Tensor,
    scale: Tensor,
    zero: Tensor | None,
    *,
    bits: int,
    dtype: torch.dtype,
    form: str,
    bias: Tensor | None = None,
    activations: int = 16,
    compiled: bool = True,
) -> LowBit:
    """The weight w = scale · (q - 2^(bits-1)) [+ zero], laid out for `form` in a run of `dtype`.

    `codes` uint8 [N, K]; `scale` and `zero` [N, G] of any float type, kept in `dtype`; `bias` [N].
    `activations` 8 asks for quantised activations, as int8-dynamic does by itself. `compiled` lets
    the packed form use C functions where it can: seconds, once a process and width.

    Raises:
        ValueError: a form that is none, or one that cannot hold such a weight.
    """
    outputs, inputs = codes.shape
    groups = scale.shape[1]
    if inputs % groups:
        raise ValueError(f"{groups} groups do not divide rows of {inputs} weights")
    scale = scale.to(dtype)
    zero = None if zero is None else zero.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    if form in ("int8-row", "int8-dynamic"):
        if bits != 8 or groups != 1 or zero is not None:
            raise ValueError(f"{form} takes 8 bits, symmetric, with one scale a row")
        dynamic = form == "int8-dynamic" or activations == 8
        return (Int8DynamicLinear if dynamic else Int8RowLinear)(codes, scale, bias)
    if form == "int4-group":
        if bits != 4 or activations != 16:
            raise ValueError("int4-group takes 4 bits, and activations as they are")
        return Int4GroupLinear(codes, scale, zero, inputs // groups, bias)
    if form == "packed":
        found = (
            fused_functions(bits, dtype) if compiled and takes(outputs, inputs, groups) else None
        )
        if found is not None:
            return CompiledLinear(found, codes, scale, zero, bias, activations)
        return LowBitLinear(codes, scale, zero, bits, bias, activations)
    raise ValueError(f"no low-bit form is named {form!r}; legal: {', '.join(FORMS)}")


@cache
def available_low_bit_forms(dtype: torch.dtype) -> tuple[str, ...]:
    """The forms whose kernels run here for `dtype`, found by trying a product of each; and
    `BLOCKED`, `WIDENED`, `FUSED_FIRST`.

    The packed form needs nothing of the machine and is always among them.
    """
    found = [form for form in FORMS if form == "packed" or _gives_the_product(form, dtype)]
    found += [BLOCKED] if int8_blocked.works() else []
    found += [WIDENED] if widens(dtype) else []
    found += [FUSED_FIRST] if _fuses_first(dtype) else []
    return tuple(found)


def _fuses_first(dtype: torch.dtype) -> bool:
    """Without AVX-512 torch's int8 and int4 products wait for arithmetic; ours for memory, once it
    is compiled (figures in `fused`). float16 would be widened at every call."""
    if dtype == torch.float16 or torch.backends.cpu.get_cpu_capability() == "AVX512":
        return False
    return fused_functions(4, dtype) is not None


def _gives_the_product(form: str, dtype: torch.dtype) -> bool:
    """Whether one row and several come out as the reference has them."""
    bits = 4 if form == "int4-group" else 8
    activations = 8 if form == "int8-dynamic" else 16
    outputs, inputs, groups = 128, 128, 2 if bits == 4 else 1
    generator = torch.Generator().manual_seed(bits)
    shape = (outputs, inputs)
    codes = torch.randint(0, 1 << bits, shape, dtype=torch.uint8, generator=generator)
    scale = torch.rand(outputs, groups, generator=generator).to(torch.bfloat16).to(dtype)
    zero = None if bits == 8 else torch.rand(outputs, groups, generator=generator).to(dtype)
    weight = dequantise(codes, scale, zero, bits)
    try:
        weight_form = make_low_bit(
            codes, scale, zero, bits=bits, dtype=dtype, form=form, activations=activations
        )
        for rows in (1, 5):
            x = torch.randn(rows, inputs, generator=generator).to(dtype)
            truth = linear(x, weight).to(torch.float32)
            error = (weight_form(x).to(torch.float32) - truth).abs().max()
            if not bool(error <= _TOLERANCE[form][dtype] * truth.abs().max()):
                return False
    except (RuntimeError, KeyError):
        return False
    return True
