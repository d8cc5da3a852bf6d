"""int4 weights in groups: torch's int4 product, which decodes them in registers.

    w[n, k] = scale[g, n] · (q[n, k] - 8) + zero[g, n],  g = k // group

Microseconds for one matrix among many (36 MB of them), group 64, bfloat16, one Zen 4 core, torch
2.13, against the packed bfloat16 weight (`packed`):

    rows             1     2     4     16     64
    960 x 576       33    40    56    216    845
        bf16        86    81    82    143    393
    3072 x 576      99   126   178    682   2700
        bf16       204   231   221    407   1252
    49152 x 576   1542  1951  2747  10812  42876
        bf16      3052  3066  2999   5973  18450

Time grows with rows from the second on: the kernel decodes again for every four of them. Beyond
some eight rows the dense product is the faster (`crossover`).

The fast kernel takes bfloat16 activations only; in float32 and float16 a scalar one runs, eight
times slower. There the activations are rounded to bfloat16, and the form's name says so.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.linear import int4_layout
from kernels.linear.checks import refuse_no_rows
from kernels.linear.orientation import as_weight

GROUPS = (32, 64, 128, 256)
OUTPUTS = 32
"""Group sizes the product knows, and what must divide N."""

_PIECE = 1 << 18
"""Weights decoded at a time, so that codes and products stay in a core's second-level cache."""


class Int4GroupLinear:
    """y = x Wᵀ + b. One copy: torch's pack, and a scale and a zero for every group.

    Raises:
        ValueError: a shape or group the product does not take.
    """

    def __init__(
        self,
        codes: Tensor,
        scale: Tensor,
        zero: Tensor | None,
        group: int,
        bias: Tensor | None = None,
    ) -> None:
        """`codes` uint8 [N, K]; `scale`, `zero` [N, K / group], `bias` [N] in the run's dtype."""
        self.outputs, self.inputs = codes.shape
        if group not in GROUPS or self.inputs % group or self.outputs % OUTPUTS:
            raise ValueError(
                f"torch's int4 product takes groups of {GROUPS} that divide a row and rows by the "
                f"{OUTPUTS}, not {self.outputs} rows of {self.inputs} in groups of {group}"
            )
        self.group = group
        self.packed = int4_layout.pack(codes)
        zeros = torch.zeros_like(scale) if zero is None else zero
        self.scales_and_zeros = torch.stack((scale.t(), zeros.t()), dim=-1).contiguous()
        self.bias = bias
        self._layout = int4_layout.layout_of(self.outputs)
        self._rounds = scale.dtype != torch.bfloat16

    @property
    def form(self) -> str:
        name = f"int4-group g{self.group}"
        if self._rounds:
            name += " bfloat16"
        return name if self._layout is not None else f"{name}, decoded by its product"

    @property
    def nbytes(self) -> int:
        """Codes, scales and zeros, bias."""
        bias = 0 if self.bias is None else self.bias.nbytes
        return self.packed.nbytes + self.scales_and_zeros.nbytes + bias

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N] in the dtype of `x`."""
        refuse_no_rows(x)
        y = self._product(x).to(x.dtype)
        if self.bias is not None:
            y += self.bias
        return y

    def _product(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N] bfloat16."""
        y: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.to(torch.bfloat16).contiguous(),
            self.packed,
            self.group,
            self.scales_and_zeros.to(torch.bfloat16),
        )
        return y

    def dense(self) -> Tensor:
        """[N, K] in the run's dtype, each weight rounded once."""
        if self._layout is None:
            return self._through_product()
        out = torch.empty(self.inputs, self.outputs, dtype=self.scales_and_zeros.dtype)
        done = 0
        for part in int4_layout.blocks(self.packed, self._layout, self.outputs, self.inputs):
            width = part.outputs
            step = max(1, _PIECE // (width * self.inputs))
            for first in range(0, part.count, step):
                values = part.values(first, min(first + step, part.count), out.dtype)
                end = done + values.shape[0] * width
                self._scale(values, done, end, out[:, done:end])
                done = end
        return as_weight(out)

    def _scale(self, values: Tensor, first: int, end: int, out: Tensor) -> None:
        """q - 8 [blocks, K, B] of outputs first..end -> weights in `out` [K, blocks · B]."""
        blocks, inputs, width = values.shape
        groups = inputs // self.group
        numbers = self.scales_and_zeros[:, first:end].view(groups, 1, blocks, width, 2)
        scale, zero = numbers.permute(4, 2, 0, 1, 3).contiguous()  # [blocks, G, 1, B] each
        torch.addcmul(
            zero,
            values.view(blocks, groups, self.group, width),
            scale,
            out=out.view(groups, self.group, blocks, width).permute(2, 0, 1, 3),
        )

    def _through_product(self) -> Tensor:
        """The dense form where the layout is unknown: the product with the identity."""
        identity = torch.eye(self.inputs, dtype=torch.bfloat16)
        return self._product(identity).to(self.scales_and_zeros.dtype).t()

    def rows(self, ids: Tensor) -> Tensor:
        """Rows `ids` [T] of the dequantised matrix: [T, K]."""
        if self._layout is None:
            return self._through_product()[ids]
        codes = int4_layout.code_rows(self.packed, self._layout, self.outputs, self.inputs, ids)
        values = codes.sub_(8).view(torch.int8).to(self.scales_and_zeros.dtype)
        numbers = self.scales_and_zeros[:, ids]  # [G, T, 2]
        scale, zero = numbers.permute(2, 1, 0).unsqueeze(-1)  # [T, G, 1] each
        grouped = values.view(ids.shape[0], self.inputs // self.group, self.group)
        return torch.addcmul(zero, grouped, scale).reshape(ids.shape[0], self.inputs)
