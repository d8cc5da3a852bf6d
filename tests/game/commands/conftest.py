"""What the tests of every command share."""

from __future__ import annotations

import pytest
from canned_worker import CannedWorker

from game.session import Session


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """`machine(*answers)` puts an engine that answers so in the place of the real one."""

    def use(*answers):
        worker = CannedWorker(*answers)
        original = Session.open.__func__

        def opened(cls, **options):
            options["home"] = tmp_path
            return original(cls, **options, make_client=worker.make)

        monkeypatch.setattr(Session, "open", classmethod(opened))
        return worker

    monkeypatch.setenv("LATENCY_WALL_HOME", str(tmp_path))
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "cache"))
    return use
