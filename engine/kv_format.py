"""How many bytes one cached key or value vector takes, by the width it is kept in.

Torch-free: the price counts with it what the cache allocates. 8 bits are symmetric, one scale a
vector; 4 bits are asymmetric, a scale and a least value a vector, two codes a byte. A vector is one
token's key (or value) in one KV head.
"""

from __future__ import annotations

SCALE_BYTES = 2
"""A scale, and a least value, are float16."""

KV_WIDTHS = (0, 16, 8, 4)
"""`cache.bits`: 0 is the precision of the run."""


def vector_bytes(head_dim: int, bits: int, element: int) -> int:
    """Bytes of one key or value vector; `element` is the size of the run's precision.

    Raises:
        ValueError: a width there is no format for, or an odd head in 4 bits.
    """
    if bits == 0:
        return head_dim * element
    if bits == 16:
        return head_dim * 2
    if bits == 8:
        return head_dim + SCALE_BYTES
    if bits == 4:
        if head_dim % 2:
            raise ValueError(f"4-bit codes go two to a byte; a head of {head_dim} is odd")
        return head_dim // 2 + 2 * SCALE_BYTES
    raise ValueError(f"no KV format has {bits} bits; legal: {', '.join(map(str, KV_WIDTHS))}")
