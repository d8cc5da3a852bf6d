"""The linear layer on a row-major weight: what torch does when nothing was prepared."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


class PlainLinear:
    """y = x Wᵀ + b through torch's own matmul. `weight` [N, K] stays readable."""

    form = "plain"

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N]."""
        return functional.linear(x, self.weight, self.bias)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)
