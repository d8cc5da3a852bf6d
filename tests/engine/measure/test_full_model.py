"""What is known of a full model, on disk: read back as written, and never trusted blindly."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.measure import answers
from engine.measure.full_model import (
    VERSION,
    FullModel,
    Spoken,
    asked_digest,
    full_models_home,
    load_full_model,
    save_full_model,
)
from engine.measure.probes import Question
from engine.quality_report import Rung

KNOWN = FullModel(
    VERSION,
    "a digest",
    Spoken("asked", (True, False), ((1, 2), (), (3,))),
    {"rung": Rung(4, 0.28, 0.72)},
)


def file_of(home: Path) -> Path:
    (path,) = home.iterdir()
    return path


def test_it_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    home = tmp_path / "new" / "folder"
    save_full_model(KNOWN, home)
    assert load_full_model("a digest", home) == KNOWN
    save_full_model(replace(KNOWN, spoken=None), home)
    assert load_full_model("a digest", home).spoken is None
    assert len(list(home.iterdir())) == 1


def test_two_models_have_a_file_each(tmp_path: Path) -> None:
    other = replace(KNOWN, digest="../another", rungs={})
    save_full_model(KNOWN, tmp_path)
    save_full_model(other, tmp_path)
    assert load_full_model("a digest", tmp_path) == KNOWN
    assert load_full_model("../another", tmp_path) == other
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"version":1}', b"\xff\xfe", b"null"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, text: bytes) -> None:
    save_full_model(KNOWN, tmp_path)
    file_of(tmp_path).write_bytes(text)
    assert load_full_model("a digest", tmp_path) == FullModel(VERSION, "a digest")
    save_full_model(KNOWN, tmp_path)
    assert load_full_model("a digest", tmp_path) == KNOWN


def test_another_version_or_another_models_file_is_not_used(tmp_path: Path) -> None:
    for stranger in (replace(KNOWN, version=VERSION + 1), replace(KNOWN, digest="b")):
        save_full_model(KNOWN, tmp_path)
        path = file_of(tmp_path)
        save_full_model(stranger, tmp_path / "apart")
        path.write_bytes(file_of(tmp_path / "apart").read_bytes())
        file_of(tmp_path / "apart").unlink()
        (tmp_path / "apart").rmdir()
        assert load_full_model("a digest", tmp_path) == FullModel(VERSION, "a digest")


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    save_full_model(KNOWN, tmp_path / "file")
    assert load_full_model("a digest", tmp_path / "file") == FullModel(VERSION, "a digest")
    save_full_model(KNOWN, None)
    assert load_full_model("a digest", None).rungs == {}


def test_it_lies_in_the_engines_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path))
    assert full_models_home().parent == tmp_path


def test_what_is_asked_is_named_by_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = (Question("Who?", "It is", ("me",)),)
    before = asked_digest(asked)
    assert asked_digest(asked) == before != asked_digest(())
    monkeypatch.setattr(answers, "TOKENS", 3)
    assert asked_digest(asked) != before
