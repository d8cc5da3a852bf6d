"""What sets SentencePiece's BPE apart: spaces as a visible mark, bytes as tokens, scores."""

from __future__ import annotations

import re
from collections.abc import Mapping

SPACE = "\u2581"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def piece_bytes(token: str) -> bytes:
    """The bytes a token stands for: `<0xE4>` is one byte, U+2581 a space."""
    byte = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(SPACE, " ").encode()


def merges_from_scores(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """The merges that a vocabulary implies, the first to be made first.

    SentencePiece joins whichever neighbours give the token with the highest score, so every way
    to cut a token into two tokens is a merge, in the order of the token's score.
    """
    merges = [
        (-score, token[:cut], token[cut:])
        for token, score in scores.items()
        for cut in range(1, len(token))
        if token[:cut] in scores and token[cut:] in scores
    ]
    merges.sort(key=lambda merge: merge[0])
    return [(left, right) for _, left, right in merges]
