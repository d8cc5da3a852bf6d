"""Rotary position embedding as mathematics (Su et al., 2021), half-split order."""

from __future__ import annotations

import torch
from torch import Tensor


def rotate(x: Tensor, positions: Tensor, inverse_frequencies: Tensor) -> Tensor:
    """Turn each pair (x[i], x[i + D/2]) of a row by the angle position · frequency[i].

    `x` [T, heads, D], `positions` [T], `inverse_frequencies` [D/2] -> [T, heads, D].
    """
    angle = positions[:, None, None].to(torch.float32) * inverse_frequencies  # [T, 1, D/2]
    first, second = x.to(torch.float32).chunk(2, dim=-1)
    turned = torch.cat(
        (
            first * angle.cos() - second * angle.sin(),
            second * angle.cos() + first * angle.sin(),
        ),
        dim=-1,
    )
    return turned.to(x.dtype)
