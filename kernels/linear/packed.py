"""The linear layer on a weight that oneDNN has laid out for its own kernels.

A decode step multiplies one row (or a few) by every weight of the model: it lives or dies by how
fast the weight streams from memory. On a row-major weight torch's matmul hands a one-row product to
a routine that walks memory poorly. oneDNN's blocked layout puts the values one vector register
wants side by side. Measured on two Zen 4 cores (AVX-512, bf16 dot products, no AMX), torch 2.13,
GB/s of weight read for plain | packed:

    rows                 1          4          8          16        (128 rows: GFLOP/s)
    float32 960 x 576    11 | 20    9 | 21     10 | 20    8 | 16     160 | 203
    float32 576 x 1536   14 | 19    10 | 28    7 | 22     6 | 17     114 | 158
    float32 49152 x 576  10 | 19    6 | 24     6 | 21     5 | 17
    bf16    960 x 576     9 | 12    9 | 17     10 | 18    8 | 14     314 | 378
    bf16    576 x 1536   16 | 18    15 | 23    13 | 19    10 | 15    358 | 406
    bf16    49152 x 576  15 | 18    14 | 22    13 | 24    11 | 17

Packed was the faster at every row count tried (1 to 32, 128, 512; the head up to 16), so there is
no crossover: one form serves both phases.

oneDNN's kernel for one to three rows is slower than its kernel for four, rows for nothing included:
a weight of 576 x 1536 took 157 µs at one row, 172 at two, 127 at four (float32). So fewer rows are
filled up to four. Whole decode steps at batch 1, one thread, interleaved: 57 -> 45 ms in float32,
35 -> 31 in bfloat16 (medians of 48 on a busy machine).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

LAYOUT_ROWS = 8
"""Row count oneDNN lays the weight out for. The layout serves any number of rows; 8 was the best
or equal best at 1 and at 16."""

FEWEST_ROWS = 4
"""A product of fewer rows runs as this many."""


class PackedLinear:
    """y = x Wᵀ + b on a blocked copy of W; the row-major weight is not kept.

    Raises:
        RuntimeError: this build of torch or this processor has no packed kernel for the dtype.
    """

    form = "onednn-packed"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        operators = torch.ops.mkldnn
        if not hasattr(operators, "_reorder_linear_weight"):
            raise RuntimeError("this build of torch has no oneDNN linear packing")
        self.packed: Tensor = operators._reorder_linear_weight(weight.contiguous(), LAYOUT_ROWS)
        self.bias = bias
        self._apply = operators._linear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N]."""
        rows = x.shape[0]
        if rows == 1:
            x = x.expand(FEWEST_ROWS, -1)
        elif rows < FEWEST_ROWS:
            x = functional.pad(x, (0, 0, 0, FEWEST_ROWS - rows))
        product: Tensor = self._apply(x, self.packed, self.bias, "none", [], "")
        return product if rows >= FEWEST_ROWS else product[:rows]

    @property
    def nbytes(self) -> int:
        """Bytes of the blocked weight, its padding included, and of the bias."""
        return _opaque_bytes(self.packed) + (0 if self.bias is None else self.bias.nbytes)


def _opaque_bytes(packed: Tensor) -> int:
    """oneDNN's own size of the tensor; element count x size where torch cannot tell it."""
    if hasattr(torch.ops.mkldnn, "_nbytes"):
        return int(torch.ops.mkldnn._nbytes(packed))
    return packed.numel() * packed.element_size()
