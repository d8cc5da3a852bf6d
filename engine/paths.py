"""Where the engine keeps what can be made again: models, the machine's measure, logs."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_home() -> Path:
    """The engine's cache folder; `LATENCY_WALL_CACHE` overrides the platform's choice."""
    override = os.environ.get("LATENCY_WALL_CACHE")
    return Path(override) if override else Path(platformdirs.user_cache_dir("latency-wall"))


def models_home() -> Path:
    return cache_home() / "models"


def machine_home() -> Path:
    return cache_home() / "machines"


def native_home() -> Path:
    return cache_home() / "native"


def log_home() -> Path:
    return cache_home() / "logs"
