"""The linear layer as mathematics: y = x Wᵀ + b, accumulated in float32."""

from __future__ import annotations

import torch
from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` [T, K], `weight` [N, K], `bias` [N] -> [T, N] in the dtype of `x`."""
    y = x.to(torch.float32) @ weight.to(torch.float32).T
    if bias is not None:
        y = y + bias.to(torch.float32)
    return y.to(x.dtype)
