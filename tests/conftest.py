"""What tests in every folder may ask for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# pytest puts this folder on the path, and its `engine/` would hide the package of that name: a
# folder without __init__.py loses to a package, but only to one that the path leads to.
ROOT = str(Path(__file__).parents[1])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)


@pytest.fixture(scope="session")
def default_model_path() -> Path:
    """The default model's file, fetched once; tests that need it are skipped without a network."""
    from engine.model.fetch import FetchError, fetch_default

    try:
        return fetch_default()
    except FetchError as error:
        pytest.skip(str(error))
