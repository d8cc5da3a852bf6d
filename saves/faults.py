"""What can go wrong with a save, and the note that says where a damaged one was put."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path


class SaveError(ValueError):
    """A save could not be read or written. The message says what and where."""


class NewerSaveError(SaveError):
    """The save was written by a newer version of the game; it was left as it stands."""


class ProfileNameError(SaveError):
    """A profile name that cannot be; the message says what would do."""


class UnknownProfileError(SaveError):
    """No profile goes by that name; the message lists those that exist."""


@dataclass(frozen=True)
class Damage:
    """A damaged save, set aside: nothing of it was erased.

    `path` is where it lay, `aside` where it lies now (None where it was missing and its backup
    took its place), `rescued` how many documents or records stand again at `path`.
    """

    path: Path
    aside: Path | None
    why: str
    rescued: int


def aside_path(path: Path, now: datetime | None = None) -> Path:
    """A free name beside `path`: `<name>.damaged-<UTC time>`, numbered if it is taken."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    candidate = path.with_name(f"{path.name}.damaged-{stamp}")
    number = 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}.damaged-{stamp}-{number}")
    return candidate


def cannot(what: str, path: Path, error: OSError) -> SaveError:
    """`OSError` told as a SaveError that names the path and the system's reason."""
    return SaveError(f"cannot {what} {path}: {error.strerror or error}")
