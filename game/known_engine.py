"""What the last session learned of the engine, so that the forge can price before it wakes.

A cache, not a save: what cannot be read is learned again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

import msgspec

from engine.capabilities import Capabilities
from engine.drafters import NO_OTHERS, Drafters
from engine.machine import MachineProfile
from engine.model.config import ModelConfig
from engine.paths import cache_home

VERSION = 3
"""2: capabilities tell which forms of few bits the machine has. 3: what can draft is told."""

Choice = tuple[str | None, str, str, str]
"""Worker, device, model, and the model that drafts for it."""


class KnownEngine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of one choice."""

    version: int
    capabilities: Capabilities
    model: ModelConfig
    model_name: str
    machine: MachineProfile | None
    drafters: Drafters = NO_OTHERS


def known_path(choice: Choice) -> Path:
    name = hashlib.sha256(msgspec.json.encode(choice)).hexdigest()[:16]
    return cache_home() / "known" / f"{name}.json"


def recall(choice: Choice) -> KnownEngine | None:
    """None where nothing was kept, or what was kept cannot be read."""
    try:
        text = known_path(choice).read_bytes()
        known = msgspec.json.decode(text, type=KnownEngine)
    except (OSError, msgspec.DecodeError, ValueError):
        return None
    return known if known.version == VERSION else None


def remember(choice: Choice, known: KnownEngine) -> None:
    """Keep it for the next session; a cache that cannot be written is done without."""
    path = known_path(choice)
    part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(msgspec.json.encode(known))
        part.replace(path)
