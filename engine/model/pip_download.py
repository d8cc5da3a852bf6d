"""One package file through pip, as a child process that cannot hang and tells how far it is.

pip reports no progress that a program could read, so the file it writes is watched as it grows.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.clean import clean

STALL_SECONDS = 180.0
POLL_SECONDS = 0.2
_LAST_BYTES = 8_192


class DownloadError(Exception):
    """pip did not deliver: what it said last, or that it went silent."""


def pip_download(
    command: Sequence[str],
    requirement: str,
    room: Path,
    grown: Callable[[int], None],
    stall_seconds: float = STALL_SECONDS,
) -> Path:
    """Download `requirement`, without its dependencies, into a folder of its own below `room`.

    `command` is how pip's `download` is started; `grown` is told the bytes written so far. pip is
    stopped when nothing has grown for `stall_seconds`, and when this call ends for any reason.

    Raises:
        DownloadError: pip failed, stalled, could not be started, or gave not exactly one file.
    """
    destination, scratch, talk = room / "wheel", room / "scratch", room / "pip.log"
    destination.mkdir()
    scratch.mkdir()
    line = [
        *command,
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--disable-pip-version-check",
        "--progress-bar=off",
        f"--dest={destination}",
        requirement,
    ]
    places = {name: str(scratch) for name in ("TMPDIR", "TMP", "TEMP")}
    with talk.open("wb") as log:
        try:
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=os.environ | places,
            )
        except OSError as error:
            raise DownloadError(f"pip could not be started ({error.strerror or error})") from None
        try:
            _watch(process, (destination, scratch), grown, stall_seconds)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    if process.returncode != 0:
        raise DownloadError(f"pip could not download {requirement}: {_reason(talk)}")
    files = [path for path in destination.iterdir() if path.is_file()]
    if len(files) != 1:
        raise DownloadError(f"pip gave {len(files)} files for {requirement}; one was expected")
    return files[0]


def _watch(
    process: subprocess.Popen[bytes],
    folders: Sequence[Path],
    grown: Callable[[int], None],
    stall_seconds: float,
) -> None:
    """Wait for the process, telling how far the largest file in `folders` has grown."""
    most = 0
    moved = time.monotonic()
    while True:
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            ended = False
        else:
            ended = True
        size = max((_largest(folder) for folder in folders), default=0)
        if size > most:
            most, moved = size, time.monotonic()
            grown(most)
        if ended:
            return
        if time.monotonic() - moved > stall_seconds:
            raise DownloadError(
                f"pip downloaded nothing for {stall_seconds:.0f} seconds and was stopped"
            )


def _largest(folder: Path) -> int:
    """Size of the largest file below `folder`; files may vanish while they are looked at."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(parent, name)).st_size)
            except OSError:
                continue
    return largest


def _reason(talk: Path) -> str:
    """Why pip gave up: its last error, and that no index answered where it had to try again.

    Without a network pip ends by saying that no such package exists, which is not what is wrong.
    """
    with talk.open("rb") as file:
        file.seek(max(talk.stat().st_size - _LAST_BYTES, 0))
        text = file.read().decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    said = clean(errors[-1], limit=300, one_line=True) if errors else "it gave no reason"
    if any(line.startswith("WARNING: Retrying") for line in lines):
        return f"the package index could not be reached ({said})"
    return said
