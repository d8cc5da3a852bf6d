"""One JSON document a file: written whole or not at all, with the version before it kept.

The writing order makes every crash harmless: the new text goes to a temporary file and is
fsynced; the standing file gets a second name, `.bak`; then the temporary file is renamed over it
and the folder is fsynced. At every moment the name holds a whole document, the old or the new.
Two writers at once cannot mix: each has a temporary file of its own, and the last rename wins.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from saves.faults import Damage, NewerSaveError, SaveError, aside_path, cannot

DOCUMENT_VERSION = 1
BACKUP = ".bak"
PART = ".part"
STALE_PART_SECONDS = 3600.0
LARGEST_DOCUMENT = 16 << 20

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True)
class Reading(Generic[T]):
    """`value` is None where neither the document nor its backup could be read."""

    value: T | None
    damage: Damage | None = None


def backup_path(path: Path) -> Path:
    return path.with_name(path.name + BACKUP)


def write_document(path: Path, document: msgspec.Struct) -> None:
    """Replace `path` by `document` in one step, keeping the document before it as `.bak`.

    Raises:
        SaveError: the folder cannot be written (read-only, full, not a folder).
    """
    text = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    _replace(path, text, keep_backup=True)


def read_document(path: Path, kind: type[T]) -> Reading[T]:
    """The document at `path`, or the one before it where this one is damaged.

    A damaged document is renamed to `<name>.damaged-<time>`; a readable `.bak` takes its place.

    Raises:
        NewerSaveError: a newer version wrote it; nothing is touched.
        SaveError: the file exists and the system will not let it be read.
    """
    try:
        return Reading(_decode(path, kind))
    except FileNotFoundError:
        return _restore(path, kind, None, "the document is missing")
    except NewerSaveError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        why = str(error)
    except OSError as error:
        raise cannot("read", path, error) from None
    aside = aside_path(path)
    try:
        path.replace(aside)
    except OSError as error:
        raise cannot("set aside the damaged", path, error) from None
    return _restore(path, kind, aside, why)


def remove_stale_parts(folder: Path, now: float | None = None) -> None:
    """Drop temporary files a crash left behind; those younger than an hour may be in use."""
    limit = (time.time() if now is None else now) - STALE_PART_SECONDS
    with contextlib.suppress(OSError):
        for part in folder.glob(f".*{PART}"):
            with contextlib.suppress(OSError):
                if part.stat().st_mtime < limit:
                    part.unlink()


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` durable. A no-op where folders cannot be opened (Windows)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        # Some network file systems refuse to sync a folder; the rename stands all the same.
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _decode(path: Path, kind: type[T]) -> T:
    with path.open("rb") as file:
        text = file.read(LARGEST_DOCUMENT + 1)
    if len(text) > LARGEST_DOCUMENT:
        raise ValueError(f"longer than {LARGEST_DOCUMENT} bytes")
    plain: Any = msgspec.json.decode(text)
    if not isinstance(plain, dict):
        raise ValueError("not a JSON object")
    version = plain.get("version")
    if isinstance(version, int) and not isinstance(version, bool) and version > DOCUMENT_VERSION:
        raise NewerSaveError(
            f"{path} has version {version} and this game reads up to {DOCUMENT_VERSION}: "
            "it was left untouched; play it with the newer game"
        )
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        # Fields are only ever added, so one that is unknown here was written by a later game.
        if "unknown field" in str(error):
            raise NewerSaveError(
                f"{path} holds what this game does not know ({error}): it was left untouched; "
                "play it with the newer game"
            ) from None
        raise


def _restore(path: Path, kind: type[T], aside: Path | None, why: str) -> Reading[T]:
    """Put the backup in the place of a document that is damaged (`aside`) or missing."""
    backup = backup_path(path)
    try:
        value = _decode(backup, kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return Reading(None, Damage(path, aside, why, rescued=0) if aside else None)
    text = msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
    # The backup was read: a folder that cannot be written now must not hide it.
    with contextlib.suppress(SaveError):
        _replace(path, text, keep_backup=False)
    return Reading(value, Damage(path, aside, why, rescued=1))


def _replace(path: Path, text: bytes, keep_backup: bool) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{PART}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if keep_backup:
            _keep_backup(path)
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise cannot("write", path, error) from None
    sync_folder(path.parent)


def _keep_backup(path: Path) -> None:
    """Give the standing document its second name; its first one is never missing meanwhile."""
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{BACKUP}{PART}")
    try:
        os.link(path, part)
    except FileNotFoundError:
        return
    except OSError:
        # No hard links here (FAT, some network drives): a copy does.
        with part.open("xb") as file:
            file.write(path.read_bytes())
            file.flush()
            os.fsync(file.fileno())
    part.replace(backup_path(path))
