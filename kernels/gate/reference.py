"""SwiGLU as mathematics (Shazeer, 2020)."""

from __future__ import annotations

import torch
from torch import Tensor


def swiglu(x: Tensor) -> Tensor:
    """silu(gate) · up for gate and up side by side: [T, 2 F] -> [T, F] in the dtype of `x`."""
    gate, up = x.to(torch.float32).chunk(2, dim=-1)
    return (gate / (1 + torch.exp(-gate)) * up).to(x.dtype)
