"""Bytes as they arrive, cut into lines of bounded length. Used at both ends of the pipes."""

from __future__ import annotations

LINE_LIMIT = 16 * 1024 * 1024
"""Bytes one message may take; far above the largest trial result (about 100 kB)."""


class LineAssembler:
    """Keeps the unfinished line between reads and never holds more than `limit` bytes of it."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that `data` completes, without newline; None stands for one over the limit."""
        *endings, rest = data.split(b"\n")
        lines: list[bytes | None] = []
        for ending in endings:
            self._hold(ending)
            lines.append(None if self._size > self._limit else b"".join(self._pieces))
            self._pieces.clear()
            self._size = 0
        self._hold(rest)
        return lines

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)
