"""The text that methods watch activations on. It is not the text that quality is judged on.

How it came to be is told in `corpus/SOURCE.md`. It is a mixture all along: its first tokens are as
varied as the whole, so that a short calibration is merely short.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Protocol

TEXT = Path(__file__).parent / "corpus" / "calibration.txt"


class Encoder(Protocol):
    """The part of a tokenizer that calibration needs."""

    def encode(self, text: str) -> list[int]: ...


@lru_cache(maxsize=1)
def calibration_text(path: Path = TEXT) -> str:
    """Passages with an empty line between them. Raises OSError where the file is not there."""
    return path.read_text(encoding="utf-8")


def calibration_ids(tokenizer: Encoder, count: int) -> list[int]:
    """The first `count` tokens of the calibration text, or all of it where it has fewer.

    The same for every call: nothing is drawn. The default model's tokenizer makes more than 65,536
    tokens of the text.

    Raises:
        ValueError: a count below 1.
    """
    if count < 1:
        raise ValueError(f"{count} calibration tokens; at least 1")
    return tokenizer.encode(calibration_text())[:count]
