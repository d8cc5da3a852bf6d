"""The doctor names what is missing and how to get it, and never fails for what it finds."""

from __future__ import annotations

import json

import pytest
from canned_trials import CAPABILITIES

import engine.client
from engine.messages import PROTOCOL, Hello
from game import cli
from game.commands import doctor


class StillClient:
    """A worker that says hello, or that cannot."""

    trouble: Exception | None = None

    def __init__(self, command=None, device="cpu") -> None:
        self.command = command

    async def start(self) -> Hello:
        if self.trouble is not None:
            raise self.trouble
        return Hello(0, PROTOCOL, 1, CAPABILITIES, "active")

    async def stop(self) -> None:
        pass


@pytest.fixture
def still(monkeypatch, tmp_path):
    monkeypatch.setattr(engine.client, "WorkerClient", StillClient)
    monkeypatch.setattr(StillClient, "trouble", None)
    monkeypatch.setenv("LATENCY_WALL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "cache"))


def examined(capsys, *arguments: str) -> dict:
    assert cli.run(["doctor", "--json", *arguments]) == 0
    told = json.loads(capsys.readouterr().out)
    return {finding["name"]: finding for finding in told["findings"]} | {"ready": told["ready"]}


def test_a_missing_model_is_named_with_its_cure(still, capsys):
    told = examined(capsys)
    assert told["model"]["state"] == "missing"
    assert told["model"]["cure"] == "latency-wall model fetch"
    assert told["ready"] is False


def test_the_machine_is_described_by_the_engine_itself(still, capsys):
    told = examined(capsys)
    assert CAPABILITIES.device_name in told["device"]["found"]
    assert told["ceilings"]["state"] == "note" and "bench" in told["ceilings"]["cure"]


def test_an_engine_that_cannot_start_is_a_finding_not_a_crash(still, capsys, monkeypatch):
    monkeypatch.setattr(StillClient, "trouble", OSError("no such file: \x1b[31mpython"))
    told = examined(capsys)
    assert told["engine"]["state"] == "missing"
    assert cli.run(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "no such file: python" in out and "\x1b" not in out


def test_a_distribution_that_owns_one_of_our_names_is_named(monkeypatch):
    owners = {"game": ["latency-wall", "other-game"], "engine": ["latency-wall"]}
    monkeypatch.setattr(doctor.metadata, "packages_distributions", lambda: owners)
    (finding,) = doctor.package_owners()
    assert finding.state == "missing" and "other-game" in finding.found
    owners["game"] = ["latency-wall"]
    assert [finding.state for finding in doctor.package_owners()] == ["ok"]


@pytest.mark.parametrize(("size", "state"), [((59, 24), "missing"), ((80, 24), "ok")])
def test_a_small_terminal_is_named(monkeypatch, size, state):
    monkeypatch.setattr(doctor.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(doctor.shutil, "get_terminal_size", lambda: size)
    assert doctor.terminal_size().state == state


def test_saves_that_cannot_be_written_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("LATENCY_WALL_HOME", str(tmp_path / "home"))
    assert doctor.data_folder().state == "ok"
    monkeypatch.setattr(doctor.os, "access", lambda place, mode: False)
    assert doctor.data_folder().state == "missing"
