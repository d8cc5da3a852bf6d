"""Weights of any width that stay packed in panels, and the C functions that read them.

`fused.c` says how they lie and multiplies by them; `fused` compiles it. Whole groups of runs of 32
weights and whole panels of 32 outputs are kept so; what is not, `low_bit` keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kernels import native
from kernels.linear import bitstream
from kernels.linear.bitstream import RUN
from kernels.linear.checks import refuse_no_rows
from kernels.linear.dispatch import widens
from kernels.linear.int8_pieces import rounded
from kernels.linear.widened import worth_widening

PANEL = 32
"""Outputs whose words lie side by side."""

FUSED_ROWS = 32
"""Up to so many rows decoding and product are one loop; beyond, decoding once is cheaper, unless
the processor must widen what it decoded."""

PIECE = 1 << 18
"""Weights that are dense at a time, beyond."""


@dataclass(frozen=True)
class Functions:
    """Those of `fused.c` for one width, in runs of `dtype`; `seconds` it took to make them."""

    bits: int
    dtype: torch.dtype
    seconds: float
    product: native.Function
    dense: native.Function
    rows: native.Function


def takes(outputs: int, inputs: int, groups: int) -> bool:
    """Whether a weight in `groups` groups a row comes in whole panels and runs."""
    return outputs % PANEL == 0 and inputs % (groups * RUN) == 0


class CompiledLinear:
    """y = x Wᵀ + b on packed codes.

    `activations` 8 rounds each token to 8 bits by its largest value before the product, as W8A8
    does: the values, not the speed.
    """

    def __init__(
        self,
        functions: Functions,
        codes: Tensor,
        scale: Tensor,
        zero: Tensor | None,
        bias: Tensor | None = None,
        activations: int = 16,
    ) -> None:
        """`codes` uint8 [N, K], `scale` and `zero` [N, G], `bias` [N]; numbers in the dtype of
        `functions`.

        Raises:
            ValueError: a shape that `takes` does not, or a code wider than the functions' width.
        """
        self.outputs, self.inputs = codes.shape
        self.groups = scale.shape[1]
        if not takes(self.outputs, self.inputs, self.groups):
            raise ValueError(
                f"a weight {list(codes.shape)} in {self.groups} groups does not come in panels of "
                f"{PANEL} outputs and runs of {RUN} inputs"
            )
        self.bits = functions.bits
        self.dtype = functions.dtype
        words = bitstream.pack(codes, self.bits).words  # [K / RUN, bits, N]
        runs, bits, outputs = words.shape
        places = words.view(runs, bits, outputs // PANEL, PANEL)
        self.words = places.permute(2, 0, 1, 3).contiguous()
        self.scale = _panels(scale)
        self.zero = None if zero is None else _panels(zero)
        self.bias = bias
        self.activations = activations
        self._functions = functions
        self._weight = (self.words.data_ptr(), self.scale.data_ptr(), native.data_of(self.zero))
        self._bias = native.data_of(bias)

    @property
    def function(self) -> int | None:
        """Where the product's function lies, for others in C to call."""
        return native.address_of(self._functions.product)

    @property
    def addresses(self) -> tuple[int | None, ...]:
        """Of words, scales, zeros and bias: good as long as this lives."""
        return (*self._weight, self._bias)

    @property
    def form(self) -> str:
        return f"packed-{self.bits}bit compiled" + ", int8 activations" * (self.activations == 8)

    @property
    def nbytes(self) -> int:
        """Codes, scales and zeros, bias."""
        numbers = (self.words, self.scale, self.zero, self.bias)
        return sum(n.nbytes for n in numbers if n is not None)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N] in the dtype of `x`. Sums are float32."""
        refuse_no_rows(x)
        if self.activations == 8:
            x = rounded(x)
        if x.dtype != self.dtype or not x.is_contiguous():
            return self._product(x.to(self.dtype).contiguous()).to(x.dtype)
        return self._product(x)

    def dense(self) -> Tensor:
        """[N, K] in the run's dtype."""
        return self._dense(0, self.outputs)

    def rows(self, ids: Tensor) -> Tensor:
        """Rows `ids` int64 [T] of the dequantised matrix: [T, K]."""
        ids = ids.contiguous()
        found = torch.empty(ids.shape[0], self.inputs, dtype=self.dtype)
        shape = (ids.shape[0], self.inputs, self.groups)
        self._functions.rows(*self._weight, ids.data_ptr(), found.data_ptr(), *shape)
        return found

    def _product(self, x: Tensor) -> Tensor:
        rows = x.shape[0]
        y = torch.empty(rows, self.outputs, dtype=self.dtype)
        if rows > FUSED_ROWS and not self._would_widen:
            return self._by_pieces(x, y)
        scratch = torch.empty(rows * (self.inputs + self.inputs // RUN), dtype=torch.float32)
        self._functions.product(
            x.data_ptr(),
            *self._weight,
            self._bias,
            y.data_ptr(),
            scratch.data_ptr(),
            rows,
            self.outputs,
            self.inputs,
            self.groups,
            torch.get_num_threads(),
        )
        return y

    def _by_pieces(self, x: Tensor, y: Tensor) -> Tensor:
        step = max(PIECE // self.inputs // PANEL, 1) * PANEL
        for first in range(0, self.outputs, step):
            end = min(first + step, self.outputs)
            bias = None if self.bias is None else self.bias[first:end]
            y[:, first:end] = functional.linear(x, self._dense(first, end), bias)
        return y

    def _dense(self, first: int, end: int) -> Tensor:
        """Outputs first..end, both whole panels: [end - first, K]."""
        found = torch.empty(end - first, self.inputs, dtype=self.dtype)
        self._functions.dense(
            *self._weight,
            found.data_ptr(),
            first // PANEL,
            end // PANEL,
            self.inputs,
            self.groups,
            torch.get_num_threads(),
        )
        return found

    @property
    def _would_widen(self) -> bool:
        return widens(self.dtype) and worth_widening(self.outputs, self.inputs)


def _panels(numbers: Tensor) -> Tensor:
    """[N, G] -> [N / PANEL, G, PANEL]."""
    outputs, groups = numbers.shape
    return numbers.reshape(outputs // PANEL, PANEL, groups).transpose(1, 2).contiguous()
