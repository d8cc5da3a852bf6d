"""The two halves of a layer of matrices multiplied in C, around its attention, each in one call.

A decode step of a small model is bound by calls as much as by bytes: a layer makes fourteen of them
in Python, and tensors between. `block.c` does the same in two.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from kernels import native
from kernels.gate.swiglu import swiglu
from kernels.linear.bitstream import RUN
from kernels.linear.compiled import CompiledLinear, Functions
from kernels.linear.dispatch import Linear
from kernels.linear.fused import fused_functions
from kernels.linear.row_major import RowMajorLinear, few_rows_product
from kernels.norm.rms_norm import RMSNorm
from kernels.residual.add import add
from kernels.rope import rotation
from kernels.rope.rotation import Rotation

SOURCE = Path(__file__).with_name("block.c")

_SIGNATURES = {"before_attention": "pppppppli", "after_attention": "ppppli"}

_FLOAT = 4

InC = CompiledLinear | RowMajorLinear
"""Matrices whose product of a few rows is a function in C, with the same arguments."""


class _Matrix(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("product", "words", "scale", "zero", "bias")),
        *((name, ctypes.c_long) for name in ("outputs", "inputs", "groups")),
    )


class _Before(ctypes.Structure):
    _fields_ = (
        ("gain", ctypes.c_void_p),
        ("floor", ctypes.c_float),
        ("qkv", _Matrix),
        *((name, ctypes.c_long) for name in ("turned", "width", "scratch")),
    )


class _After(ctypes.Structure):
    _fields_ = (
        ("gain", ctypes.c_void_p),
        ("floor", ctypes.c_float),
        *((name, _Matrix) for name in ("o", "gate_up", "down")),
        ("scratch", ctypes.c_long),
    )


class BeforeAttention:
    """norm, QKV and rotation: made by `before_attention`, which says for what."""

    def __init__(
        self, function: native.Function, norm: RMSNorm, qkv: InC, heads: int, width: int
    ) -> None:
        self._function = function
        self._kept = (norm, qkv)  # their addresses are in the structure
        self._turned, self._width = heads, width
        self._dtype = qkv.dtype
        scratch = _scratch((qkv,))
        self._row = _floats(scratch, qkv.inputs, qkv.dtype)
        self._half = _Before(
            norm.gain.data_ptr(), norm.length_floor, _matrix(qkv), heads, width, scratch
        )
        self._address = ctypes.addressof(self._half)

    def __call__(self, stream: Tensor, turn: Rotation) -> tuple[Tensor, Tensor]:
        """[T, H] float32 -> queries and keys turned [T, heads + kv, D]; values [T, kv, D]."""
        rows = stream.shape[0]
        outputs = self._half.qkv.outputs
        vectors = torch.empty(rows, outputs // self._width, self._width, dtype=self._dtype)
        rotated = torch.empty(rows, self._turned, self._width, dtype=self._dtype)
        workspace = torch.empty(rows * self._row)
        self._function(
            self._address,
            stream.data_ptr(),
            turn.cosine.data_ptr(),
            turn.signed_sine.data_ptr(),
            vectors.data_ptr(),
            rotated.data_ptr(),
            workspace.data_ptr(),
            rows,
            torch.get_num_threads(),
        )
        return rotated, vectors.narrow(1, self._turned, vectors.shape[1] - self._turned)


class AfterAttention:
    """O, norm, gates and Down, added to the stream: made by `after_attention`."""

    def __init__(
        self,
        function: native.Function,
        norm: RMSNorm,
        o: InC,
        gate_up: InC,
        down: InC,
    ) -> None:
        self._function = function
        self._kept = (norm, o, gate_up, down)  # their addresses are in the structure
        scratch = _scratch((o, gate_up, down))
        self._row = _floats(scratch, o.outputs + 3 * down.inputs, o.dtype)
        matrices = (_matrix(one) for one in (o, gate_up, down))
        self._half = _After(norm.gain.data_ptr(), norm.length_floor, *matrices, scratch)
        self._address = ctypes.addressof(self._half)

    def __call__(self, attended: Tensor, stream: Tensor) -> None:
        """[T, heads · D] in the matrices' dtype; `stream` [T, H] float32, in place."""
        rows = stream.shape[0]
        workspace, attended = torch.empty(rows * self._row), attended.contiguous()
        self._function(
            self._address,
            attended.data_ptr(),
            stream.data_ptr(),
            workspace.data_ptr(),
            rows,
            torch.get_num_threads(),
        )


def before_attention(norm: RMSNorm, qkv: Linear, heads: int, width: int) -> BeforeAttention | None:
    """The first half of a layer whose `heads` first vectors of `width` numbers are turned.

    None where QKV is not compiled, or a function is not to be had or wrong.
    """
    found = _of((qkv,), norm)
    if found is None or not rotation.is_native(width, found[0][0].dtype):
        return None
    (matrix,), functions = found
    return BeforeAttention(functions["before_attention"], norm, matrix, heads, width)


def after_attention(
    norm: RMSNorm, o: Linear, gate_up: Linear, down: Linear
) -> AfterAttention | None:
    """The second half; None as above, of any of the three."""
    found = _of((o, gate_up, down), norm)
    if found is None:
        return None
    matrices, functions = found
    return AfterAttention(functions["after_attention"], norm, *matrices)


def is_native(dtype: torch.dtype, bits: int) -> bool:
    """Whether halves of matrices in so many bits, 16 for `dtype` itself, are joined in its runs."""
    return _matrices(dtype, bits) is not None and _native(dtype, bits) is not None


_WHOLE = RowMajorLinear.bits

_Found = tuple[list[InC], dict[str, native.Function]]


def _of(linears: Sequence[Linear], norm: RMSNorm) -> _Found | None:
    """The matrices, where all are compiled and take rows as they are, and functions for them."""
    matrices = [one for one in linears if isinstance(one, InC)]
    if len(matrices) < len(linears) or any(one.activations != 16 for one in matrices):
        return None
    if not norm.is_native or any(one.dtype != norm.dtype for one in matrices):
        return None
    found = [_native(one.dtype, one.bits) for one in matrices]
    return None if found[0] is None or None in found else (matrices, found[0])


def _matrix(linear: InC) -> _Matrix:
    return _Matrix(linear.function, *linear.addresses, linear.outputs, linear.inputs, linear.groups)


def _scratch(linears: Sequence[InC]) -> int:
    """Floats of a row that the largest product needs."""
    return max(one.inputs + one.inputs // RUN for one in linears)


def _floats(scratch: int, numbers: int, dtype: torch.dtype) -> int:
    """Floats of a row of the workspace."""
    return scratch + -(-numbers * dtype.itemsize // _FLOAT)


@cache
def _native(dtype: torch.dtype, bits: int) -> dict[str, native.Function] | None:
    """The functions in C, where a layer of `bits` comes out right."""
    linear = _matrices(dtype, bits)
    if linear is None or not rotation.is_native(32, dtype):
        return None
    try:
        functions = native.functions(SOURCE, _SIGNATURES, dtype)
    except native.NativeError:
        return None
    hidden, inner, heads, width = 64, 96, 3, 32
    qkv, o = linear(heads * width, hidden), linear(hidden, heads * width)
    gate_up, down = linear(2 * inner, hidden), linear(hidden, inner)
    norm = RMSNorm(native.probe(hidden, dtype=torch.float32), 1e-5, dtype)
    stream = native.probe(2, hidden, dtype=torch.float32)
    turn = Rotation.at(torch.tensor((3, 900)), native.probe(width // 2, dtype=torch.float32).abs())
    before = BeforeAttention(functions["before_attention"], norm, qkv, heads - 1, width)
    rotated, value = before(stream, turn)
    right = qkv(norm(stream)).view(2, heads, width)
    if not native.agrees(rotated, turn(right[:, :-1])) or not native.agrees(value, right[:, -1:]):
        return None
    attended, true = native.probe(2, heads * width, dtype=dtype), stream.clone()
    AfterAttention(functions["after_attention"], norm, o, gate_up, down)(attended, stream)
    add(true, o(attended))
    add(true, down(swiglu(gate_up(norm(true)))))
    return functions if native.agrees(stream.to(dtype), true) else None


def _matrices(dtype: torch.dtype, bits: int) -> Callable[[int, int], InC] | None:
    """(outputs, inputs) -> a matrix to try the halves on; None where none is multiplied in C."""
    if bits == _WHOLE:
        few = few_rows_product(dtype)
        return None if few is None else partial(_dense, few, dtype)
    products = fused_functions(bits, dtype)
    return None if products is None else partial(_packed, products)


def _dense(few: native.Function, dtype: torch.dtype, outputs: int, inputs: int) -> RowMajorLinear:
    return RowMajorLinear(few, functional.linear, native.probe(outputs, inputs, dtype=dtype) / 8)


def _packed(products: Functions, outputs: int, inputs: int) -> CompiledLinear:
    generator, most = torch.Generator().manual_seed(outputs), 1 << products.bits
    shape = (outputs, inputs)
    codes = torch.randint(0, most, shape, dtype=torch.uint8, generator=generator)
    scale = torch.full((outputs, inputs // 32), 0.1 / most, dtype=products.dtype)
    return CompiledLinear(products, codes, scale, scale / 2)
