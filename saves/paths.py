"""Where the player's data lives: the platform's user data folder, or one named outright."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

HOME_VARIABLE = "LATENCY_WALL_HOME"


def data_home() -> Path:
    """The player's data folder; `LATENCY_WALL_HOME` overrides the platform's choice."""
    override = os.environ.get(HOME_VARIABLE)
    if override:
        return Path(override).expanduser()
    return Path(platformdirs.user_data_dir("latency-wall", appauthor=False))


@dataclass(frozen=True)
class House:
    """The layout of one data folder. Nothing is created until something is written."""

    root: Path

    @property
    def profiles(self) -> Path:
        return self.root / "profiles"

    @property
    def trash(self) -> Path:
        return self.root / "trash"

    @property
    def records(self) -> Path:
        return self.root / "records.sqlite3"

    @property
    def last_used(self) -> Path:
        return self.root / "last.json"

    def profile(self, key: str) -> Path:
        return self.profiles / f"{key}.json"
