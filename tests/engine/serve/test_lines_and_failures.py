"""Lines cut from bytes as they arrive, and exceptions put into the protocol's words."""

from __future__ import annotations

import pytest

from engine.model.errors import ModelError
from engine.serve.failures import Aborted, InputError, failure
from engine.serve.lines import LineAssembler


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_are_the_same_however_the_bytes_arrive(size: int) -> None:
    data = b"one\n\ntwo words\n" + b"x" * 50 + b"\n" + b"y" * 51 + b"\nlast\nunfinished"
    assembler = LineAssembler(limit=50)
    lines: list[bytes | None] = []
    for start in range(0, len(data), size):
        lines += assembler.feed(data[start : start + size])
    assert lines == [b"one", b"", b"two words", b"x" * 50, None, b"last"]


def test_failures_have_their_kind() -> None:
    told: list[tuple[Exception, str]] = [
        (InputError("no"), "input"),
        (ModelError("no such file"), "model"),
        (Aborted(), "aborted"),
        (MemoryError(), "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "memory"),
        (RuntimeError("shapes"), "internal"),
        (ValueError("ours"), "internal"),
    ]
    for error, kind in told:
        assert failure(3, error).kind == kind
    assert failure(3, RuntimeError()).message == "RuntimeError"
    assert failure(3, MemoryError()).message == "not enough memory"
