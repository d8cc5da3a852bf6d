"""Every screen test runs in UTC and with the colours and glyphs of an ordinary terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from canned_trials import CAPABILITIES

from engine.capabilities import Capabilities


@pytest.fixture(autouse=True)
def ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("NO_COLOR", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "C.UTF-8")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def capabilities() -> Capabilities:
    return CAPABILITIES


@pytest.fixture(autouse=True)
def slow_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys of a test come faster than any hand's."""
    from game.screens.forge import ForgeScreen

    monkeypatch.setattr(ForgeScreen, "SETTLE_SECONDS", 0.0)
