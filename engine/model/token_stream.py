"""Tokens turned back into text while they arrive, never splitting a character."""

from __future__ import annotations

import codecs
from collections.abc import Callable


class TokenStream:
    """Collects the bytes of tokens and gives out the characters that are whole.

    One emoji or Chinese character is often spread over several tokens: until its last byte is
    there, `push` gives back the text before it, or nothing. Bytes that cannot become a character
    turn into U+FFFD, as UTF-8 decoders do. `bytes_of` maps a token id to its bytes, b"" for
    control tokens; `drop_space` leaves out one space at the very start, which SentencePiece models
    put there themselves.
    """

    def __init__(self, bytes_of: Callable[[int], bytes], drop_space: bool = False) -> None:
        self._bytes_of = bytes_of
        self._drop_space = drop_space
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The characters that `token` completes; "" while one is still open."""
        return self._emit(self._decoder.decode(self._bytes_of(token)))

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed."""
        return self._emit(self._decoder.decode(b"", final=True))

    def _emit(self, text: str) -> str:
        if text and self._drop_space:
            self._drop_space = False
            return text.removeprefix(" ")
        return text
