"""SHA-256 of model files, computed once for each state of a file and remembered.

A stamp remembers size and modification time beside the digest; while both still agree the file is
not read again. Stamps are a cache: a damaged or missing one costs a second of hashing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.model.errors import fault
from engine.paths import models_home

CHUNK_BYTES = 2**20

_Stamp = dict[str, str | int]


def hash_file(path: Path, report: Callable[[int], None] | None = None) -> str:
    """SHA-256 of a file's bytes, read now; `report` is told the bytes read so far.

    Raises:
        OSError: the file cannot be read.
    """
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            if report is not None:
                report(done)
    return digest.hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, from its stamp where size and modification time still agree.

    Raises:
        ModelError: the file cannot be read.
    """
    try:
        real = path.resolve(strict=True)
        status = real.stat()
        stamp_path = models_home() / "digests" / f"{_text_hash(str(real))[:32]}.json"
        state: _Stamp = {
            "path": str(real),
            "size": status.st_size,
            "mtime_ns": status.st_mtime_ns,
        }
        known = _read_stamp(stamp_path, state)
        if known is not None:
            return known
        digest = hash_file(real)
    except OSError as error:
        raise fault(path, f"cannot be read ({error.strerror or error})") from None
    try:
        _write_stamp(stamp_path, state | {"sha256": digest})
    except OSError:
        return digest  # a cache that cannot be written only costs time
    return digest


def files_digest(folder: Path, names: Sequence[str]) -> str:
    """SHA-256 of several files of a folder, taken together: over their names and digests.

    Raises:
        ModelError: one of them cannot be read.
    """
    lines = [f"{file_digest(folder / name)}  {name}\n" for name in sorted(names)]
    return _text_hash("".join(lines))


def _read_stamp(stamp_path: Path, state: _Stamp) -> str | None:
    try:
        stamp = json.loads(stamp_path.read_bytes())
        digest = stamp["sha256"]
        same = all(stamp[key] == value for key, value in state.items())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return digest if same and isinstance(digest, str) else None


def _write_stamp(stamp_path: Path, stamp: _Stamp) -> None:
    stamp_path.parent.mkdir(parents=True, exist_ok=True)
    part = stamp_path.with_suffix(f".{os.getpid()}.part")
    part.write_text(json.dumps(stamp))
    part.replace(stamp_path)


def _text_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
