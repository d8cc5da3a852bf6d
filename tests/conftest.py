"""What tests in every folder may ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("LATENCY_WALL_COMPILE", "off")
"""Products are compiled by the tests that are about it alone: elsewhere, as if no machine had a
compiler."""


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The default model's file, fetched once; tests that need it are skipped without a network."""
    from engine.model.fetch import FetchError, fetch_default

    try:
        return fetch_default()
    except FetchError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where C functions are kept, so that each is compiled once and not for every test."""
    return tmp_path_factory.mktemp("native")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, libraries: Path) -> Iterator[None]:
    """C functions as on a machine with a compiler; skipped where there is none."""
    from kernels import native
    from kernels.attention import decode
    from kernels.gate import swiglu
    from kernels.linear import row_major
    from kernels.norm import rms_norm
    from kernels.residual import add
    from kernels.rope import rotation

    monkeypatch.delenv(native.SWITCH, raising=False)
    if native.compiler() is None:
        pytest.skip("no C compiler here")
    monkeypatch.setattr(native, "_folder", libraries)
    kept = [module._native for module in (decode, swiglu, row_major, rms_norm, add, rotation)]
    for function in kept:
        function.cache_clear()
    yield
    for function in kept:
        function.cache_clear()
