"""What is remembered of the engine between sessions is a convenience that may vanish."""

from __future__ import annotations

from pathlib import Path

import pytest
from canned_trials import CAPABILITIES, MACHINE, MODEL

from game.known_engine import VERSION, Choice, KnownEngine, known_path, recall, remember

KNOWN = KnownEngine(VERSION, CAPABILITIES, MODEL, "a model", MACHINE)
DEFAULT = (None, "cpu", "default", "")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "cache"))


def test_each_choice_of_worker_device_and_models_is_remembered_apart() -> None:
    remember(DEFAULT, KNOWN)
    assert recall(DEFAULT) == KNOWN
    others: tuple[Choice, ...] = (
        ("ssh box", "cpu", "default", ""),
        (None, "cuda", "default", ""),
        (None, "cpu", "x", ""),
        (None, "cpu", "default", "x"),
    )
    for other in others:
        assert recall(other) is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"version": 1}', b"\xff"])
def test_what_cannot_be_read_is_learned_again(text: bytes) -> None:
    remember(DEFAULT, KNOWN)
    known_path(DEFAULT).write_bytes(text)
    assert recall(DEFAULT) is None


def test_what_an_older_game_kept_is_not_believed() -> None:
    old = KnownEngine(VERSION - 1, CAPABILITIES, MODEL, "a model", None)
    remember(DEFAULT, old)
    assert recall(DEFAULT) is None


def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "file"))
    remember(DEFAULT, KNOWN)
    assert recall(DEFAULT) is None
