"""How many bytes a number takes in each precision a run can have. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping

ELEMENT_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}


def element_bytes(precision: str) -> int:
    """Bytes of one weight or activation. Raises ValueError for an unknown precision."""
    if precision not in ELEMENT_BYTES:
        legal = ", ".join(ELEMENT_BYTES)
        raise ValueError(f"no precision is named {precision!r}; legal: {legal}")
    return ELEMENT_BYTES[precision]
