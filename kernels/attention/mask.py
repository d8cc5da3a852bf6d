"""Which keys a query may see, as a mask that is added to the scores."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def visible(
    query_positions: Tensor, first_key: int, keys: int, window: int | None = None
) -> Tensor:
    """True where key j is at or before the query, and within `window` positions of it.

    `query_positions` [B, L]; the keys stand at positions first_key .. first_key + keys - 1.
    A window of W sees the query itself and the W - 1 positions before it. Gives [B, L, keys].
    """
    key_positions = torch.arange(first_key, first_key + keys, device=query_positions.device)
    behind = query_positions[:, :, None] - key_positions
    seen = behind >= 0
    if window is not None:
        seen &= behind < window
    return seen


def additive(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `seen` [B, L, S] is true and -inf elsewhere: [B, 1, L, S] of `dtype`."""
    mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return mask.masked_fill_(~seen, -math.inf).unsqueeze(1)
