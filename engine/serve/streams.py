"""The worker's file descriptors: the protocol on duplicates, the standard ones on a log.

A native library may print to fd 1 or fd 2 at any time. Once these are the log, such a print
cannot break the stream of events, and the traceback of a crash is kept.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from engine.clean import clean

LOGS_KEPT = 8
LOG_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True)
class Streams:
    """`commands` is read; `events` and `beats` are written; `log` is what fds 1 and 2 are now."""

    commands: int
    events: int
    beats: int
    log: Path


def log_path(home: Path, pid: int) -> Path:
    return home / f"worker-{pid}.log"


def take_streams(home: Path) -> Streams:
    """Duplicate fds 0, 1 and 2, then point 0 at nothing and 1 and 2 at this process's log.

    The duplicates are not inherited by children, so a child cannot hold the pipes open.
    A log that cannot be made (a full or read-only disk) is replaced by /dev/null.
    """
    streams = Streams(os.dup(0), os.dup(1), os.dup(2), log_path(home, os.getpid()))
    nothing = os.open(os.devnull, os.O_RDWR)
    log = _open_log(streams.log)
    os.dup2(nothing, 0)
    os.dup2(nothing if log is None else log, 1)
    os.dup2(nothing if log is None else log, 2)
    os.close(nothing)
    if log is not None:
        os.close(log)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    faulthandler.enable()
    return streams


def _open_log(path: Path) -> int | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _drop_old_logs(path.parent)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    except OSError:
        return None


def _drop_old_logs(home: Path) -> None:
    """Leave room for one more among the newest `LOGS_KEPT`."""
    logs = sorted(home.glob("worker-*.log"), key=lambda path: path.stat().st_mtime)
    for old in logs[: max(len(logs) - LOGS_KEPT + 1, 0)]:
        old.unlink(missing_ok=True)
        old.with_suffix(".old").unlink(missing_ok=True)


def bound_log(path: Path, limit: int = LOG_BYTES) -> None:
    """Once the log passes `limit` bytes, keep it as `.old` and start again from nothing.

    Native writers hold fds 1 and 2, so the file is copied and cut, not renamed; they append.
    """
    try:
        if os.fstat(1).st_size <= limit or not path.exists():
            return
        shutil.copyfile(path, path.with_suffix(".old"))
        os.ftruncate(1, 0)
    except OSError:
        return


def read_tail(path: Path, limit: int = 4096) -> str:
    """The last `limit` bytes of a log, cleaned; "" where there is none."""
    try:
        with path.open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - limit, 0))
            return clean(log.read().decode(errors="replace")).strip()
    except OSError:
        return ""
