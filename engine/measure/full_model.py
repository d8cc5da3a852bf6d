"""What is known of a full-precision model, kept so that the next process need not ask it again.

Its marks in the questions, its answers to the prompts, the rungs of its ladder: minutes of work on
a small machine, and the same every time. One JSON file a model, like the machine's own measure.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.measure import answers, probes
from engine.measure.probes import Question
from engine.paths import cache_home
from engine.quality_report import Rung

VERSION = 1


class Spoken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the float32 model said: `marks` of every question in order (empty where its template
    takes none), `answers` to the prompts in tokens. `asked` names questions and prompts."""

    asked: str
    marks: tuple[bool, ...]
    answers: tuple[tuple[int, ...], ...]


class FullModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`rungs` are named by the digest of the recipe that made them, its precision and the text that
    they were scored on: a change of any makes them anew."""

    version: int
    digest: str
    spoken: Spoken | None = None
    rungs: dict[str, Rung] = {}


def full_models_home() -> Path:
    return cache_home() / "full_models"


def asked_digest(questions: Sequence[Question]) -> str:
    """SHA-256 of everything that a model is asked."""
    told = [probes.questions_digest(questions), answers.PROMPTS, answers.TOKENS]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()


def load_full_model(digest: str, home: Path | None) -> FullModel:
    """What `home` holds of the model; nothing where it was never asked, or the file is damaged, of
    another version or another model's. `home` None keeps nothing."""
    empty = FullModel(VERSION, digest)
    if home is None:
        return empty
    try:
        known = msgspec.json.decode(_path(digest, home).read_bytes(), type=FullModel)
    except (OSError, msgspec.DecodeError):
        return empty
    return known if (known.version, known.digest) == (VERSION, digest) else empty


def save_full_model(known: FullModel, home: Path | None) -> None:
    """Keep it; a folder that cannot be written costs the next process the asking, no more."""
    if home is None:
        return
    path = _path(known.digest, home)
    partial = path.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(msgspec.json.encode(known))
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)


def _path(digest: str, home: Path) -> Path:
    """A digest may be any text: a test's, a folder's."""
    return home / f"{hashlib.sha256(digest.encode()).hexdigest()[:16]}.json"
