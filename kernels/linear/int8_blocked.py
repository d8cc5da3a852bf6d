"""int8 weights in oneDNN's blocked layout, multiplied by activations in bytes.

torch offers four int8 products on a CPU. Microseconds for one matrix among many (36 MB of them, so
that weights come from memory), one Zen 4 core (AVX-512, VNNI), torch 2.13; `qlinear` is oneDNN's
product of bytes, scales and zero point included, `int8pack` torch's weight-only one:

    rows                    1      4     16     64
    960 x 576   int8pack    75    115    297   1018
                _int_mm     61     89    117    241
                qlinear     69     62     93    222
                bf16        86     82    143    393
    3072 x 576  int8pack   238    369    986   3472
                _int_mm    189    291    385    754
                qlinear    163    137    246    682
                bf16       204    221    407   1252
    49152 x 576 int8pack  4277   6065  24556  97560
                _int_mm   3042   4566   6326  12474
                qlinear   2290   1889   3668  10504
                bf16      3052   2999   5973  18450

qlinear is the fastest at four rows and as fast at four as at one, so a row split into two pieces of
8 bits (`int8_pieces`) goes through it as a weight-only product: half the time of int8pack on the
head, and no collapse at many rows. It takes unsigned bytes only: with signed ones this build runs a
reference kernel, 200 times slower. The layout is read where oneDNN keeps it, so that the one copy
also serves look-ups of rows and the dense form.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch
from torch import Tensor

from kernels.linear.int8_pieces import ZERO_POINT, Pieces

OUTPUTS, QUAD = 64, 4
"""oneDNN's order: [N / 64, K / 4, 64, 4] codes, then one int32 sum for every output."""

INPUTS = 64
"""oneDNN fills rows up to a multiple of this: other lengths are not taken."""

FEWEST_ROWS = 4
"""A product of fewer rows runs as this many: it is no slower."""


class BlockedInt8:
    """Codes int8 [N, K] in oneDNN's layout, multiplied by activations in `pieces` bytes each.

    Raises:
        RuntimeError: this torch or this processor has no such product, or the shape does not fill
            the layout's blocks.
    """

    name = "onednn"

    def __init__(self, codes: Tensor, pieces: int) -> None:
        self.outputs, self.inputs = codes.shape
        if self.outputs % OUTPUTS or self.inputs % INPUTS or not works():
            raise RuntimeError("oneDNN keeps int8 weights of this shape in no layout known here")
        self.packed = _pack(codes)
        self.pieces = Pieces(pieces)
        self._blocks = _view(self.packed, self.outputs, self.inputs)
        self._zero = torch.zeros(1, dtype=torch.int32)

    @property
    def nbytes(self) -> int:
        """Codes, and the sum that oneDNN keeps of each row."""
        return int(torch.ops.mkldnn._nbytes(self.packed))

    def __call__(self, x: Tensor, scale: Tensor) -> Tensor:
        """`x` [T, K] and `scale` [N] -> float32 [T, N]."""
        used = x.shape[0] * self.pieces.count
        parts = torch.empty(max(used, FEWEST_ROWS), self.inputs, dtype=torch.uint8)
        step = self.pieces.split(x, parts[:used])
        products = _product(parts, self.packed, scale.to(torch.float32), self._zero)
        return self.pieces.join(products[:used], step)

    def codes(self) -> Tensor:
        """int8 [N, K]."""
        quads = self._blocks.transpose(1, 2).contiguous()  # [N / 64, 64, K / 4] int32
        return quads.view(torch.int8).view(self.outputs, self.inputs)

    def code_rows(self, ids: Tensor) -> Tensor:
        """int8 [T, K]: the codes of outputs `ids` [T]."""
        quads = self._blocks[ids // OUTPUTS, :, ids % OUTPUTS]  # [T, K / 4] int32
        return quads.contiguous().view(torch.int8).view(ids.shape[0], self.inputs)


def _product(parts: Tensor, packed: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """(byte - 128) · code · scale, summed in int32: bytes uint8 [M, K] -> float32 [M, N]."""
    y: Tensor = torch.ops.onednn.qlinear_pointwise.default(
        parts, 1.0, ZERO_POINT, packed, scale, zero, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return y


def _pack(codes: Tensor) -> Tensor:
    operators = torch.ops.onednn
    if not hasattr(operators, "qlinear_prepack") or not hasattr(torch.ops.mkldnn, "data_ptr"):
        raise RuntimeError("this build of torch has no oneDNN int8 product")
    packed: Tensor = operators.qlinear_prepack(codes.contiguous(), [FEWEST_ROWS, codes.shape[1]])
    return packed


def _view(packed: Tensor, rows: int, columns: int) -> Tensor:
    """oneDNN's own memory as int32 [N / 64, K / 4, 64], four codes each; valid as `packed` lives.

    Raises:
        RuntimeError: it takes more or less than codes and sums.
    """
    size = int(torch.ops.mkldnn._nbytes(packed))
    if size != rows * (columns + 4):
        raise RuntimeError(f"oneDNN keeps {rows} x {columns} codes in {size} bytes")
    memory = (ctypes.c_uint8 * size).from_address(int(torch.ops.mkldnn.data_ptr(packed)))
    raw = torch.frombuffer(memory, dtype=torch.int32, count=rows * columns // 4)
    return raw.view(rows // OUTPUTS, columns // QUAD, OUTPUTS)


@cache
def works() -> bool:
    """Whether codes lie where this file looks for them, and products of bytes come out exact.

    The packer is asked with random codes, the product with the largest there are: processors that
    add pairs of products in 16 bits cannot hold those.
    """
    outputs, inputs = 3 * OUTPUTS, 2 * INPUTS
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(-128, 128, (outputs, inputs), dtype=torch.int8, generator=generator)
    codes[0], codes[1] = 127, -128
    parts = torch.full((FEWEST_ROWS, inputs), 255, dtype=torch.uint8)
    try:
        packed = _pack(codes)
        blocks = _view(packed, outputs, inputs)
        y = _product(parts, packed, torch.ones(outputs), torch.zeros(1, dtype=torch.int32))
    except RuntimeError:
        return False
    found = blocks.transpose(1, 2).contiguous().view(torch.int8).view(outputs, inputs)
    exact = (255 - ZERO_POINT) * codes.to(torch.float32).sum(dim=1)
    return torch.equal(found, codes) and torch.equal(y, exact.expand_as(y))
