"""Loads that prices are held against engines on: short and long, one and many, chunked and not."""

from __future__ import annotations

Load = tuple[int, int, int, int]
"""Prompt, output, batch, chunk."""

LOADS: list[Load] = [
    (40, 4, 1, 0),
    (40, 4, 4, 0),
    (200, 8, 4, 16),
    (30, 4, 64, 0),
    (128, 24, 8, 64),
    (500, 8, 2, 0),
]
