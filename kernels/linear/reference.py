"""The linear layer as mathematics: y = x Wᵀ + b in float32, and what quantised codes stand for."""

from __future__ import annotations

import torch
from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` [T, K], `weight` [N, K], `bias` [N] -> [T, N] in the dtype of `x`."""
    y = x.to(torch.float32) @ weight.to(torch.float32).T
    if bias is not None:
        y = y + bias.to(torch.float32)
    return y.to(x.dtype)


def dequantise(codes: Tensor, scale: Tensor, zero: Tensor | None, bits: int) -> Tensor:
    """w = scale · (q - 2^(bits-1)) [+ zero]: `codes` [N, K], `scale`, `zero` [N, G] -> float32."""
    outputs, inputs = codes.shape
    grouped = codes.to(torch.float32).sub_(1 << (bits - 1)).view(outputs, scale.shape[1], -1)
    weight = grouped * scale.to(torch.float32)[:, :, None]
    if zero is not None:
        weight += zero.to(torch.float32)[:, :, None]
    return weight.view(outputs, inputs)
