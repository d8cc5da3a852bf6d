"""Root-mean-square normalisation as mathematics (Zhang and Sennrich, 2019)."""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """y = x / sqrt(mean(x²) + eps) · weight over the last dimension.

    `x` [..., D], `weight` broadcastable to it. Computed in float32, returned in the dtype of `x`.
    """
    wide = x.to(torch.float32)
    mean_square = wide.pow(2).mean(dim=-1, keepdim=True)
    return (wide / torch.sqrt(mean_square + eps) * weight.to(torch.float32)).to(x.dtype)
