"""What tests in every folder may ask for."""

from __future__ import annotations

import os
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
