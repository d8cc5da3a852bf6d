"""The alphabet of byte-level BPE: one printable character for each of the 256 bytes.

GPT-2's choice: bytes that print in Latin-1 stand for themselves, the rest for the characters from
U+0100 on, in order.
"""

from __future__ import annotations

from collections.abc import Mapping


def _alphabet() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + index): byte for index, byte in enumerate(rest)
    }


BYTE_OF: Mapping[str, int] = _alphabet()


def spelled_bytes(token: str) -> bytes:
    """The bytes a token stands for; a token with other characters stands for its own text."""
    try:
        return bytes(BYTE_OF[char] for char in token)
    except KeyError:
        return token.encode()
