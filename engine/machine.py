"""The machine's own measure, kept between runs: ceilings, threads, wait policy, noise.

Torch-free: the client reads it to start the worker with the calibrated environment.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Literal

import msgspec

from engine.paths import machine_home

WaitPolicy = Literal["active", "passive"]
PROFILE_VERSION = 1


class Ceilings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Best rates this device was seen to reach.

    Units: bytes/s; floating-point operations/s by precision; seconds an operator call costs
    whatever its size.
    """

    read_bytes_per_second: float
    flops_per_second: dict[str, float]
    dispatch_seconds: float


class ThreadTiming(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One cell of the calibration: median seconds of a decode-like step."""

    threads: int
    wait_policy: WaitPolicy
    seconds: float


class MachineProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`noise` is the standard deviation of log ratios between two equal builds (A/A)."""

    version: int
    fingerprint: str
    measured_at: str
    threads: int
    wait_policy: WaitPolicy
    ceilings: Ceilings
    noise: float
    calibration: tuple[ThreadTiming, ...] = ()


def profile_path(fingerprint: str) -> Path:
    digest = hashlib.sha256(fingerprint.encode()).hexdigest()[:16]
    return machine_home() / f"{digest}.json"


def load_profile(fingerprint: str) -> MachineProfile | None:
    """None where the machine was never measured or the file cannot be read: measure again."""
    try:
        profile = msgspec.json.decode(profile_path(fingerprint).read_bytes(), type=MachineProfile)
    except (OSError, msgspec.DecodeError):
        return None
    return profile if profile.version == PROFILE_VERSION else None


def latest_profile(device: str, torch_version: str) -> MachineProfile | None:
    """The profile measured last for this device and torch, on whatever machine shares the cache.

    A process that has not imported torch yet does not know its fingerprint; this is its best
    guess at its own profile. None where nothing fits.
    """
    try:
        paths = sorted(machine_home().glob("*.json"), key=lambda path: -path.stat().st_mtime)
    except OSError:
        return None
    for path in paths:
        try:
            profile = msgspec.json.decode(path.read_bytes(), type=MachineProfile)
        except (OSError, msgspec.DecodeError):
            continue
        named = profile.fingerprint.split(" | ")
        ours = named[0] == device and named[-1] == f"torch {torch_version}"
        if ours and profile.version == PROFILE_VERSION:
            return profile
    return None


def save_profile(profile: MachineProfile) -> Path:
    path = profile_path(profile.fingerprint)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.part")
    with partial.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(profile), indent=2))
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    return path


def worker_environment(wait_policy: WaitPolicy) -> dict[str, str]:
    """OpenMP reads its wait policy once, at start: it can only be set for a new process."""
    return {"OMP_WAIT_POLICY": wait_policy}


def current_wait_policy() -> str:
    """The OpenMP wait policy this process was started with; "default" where none was set."""
    return os.environ.get("OMP_WAIT_POLICY", "").strip().lower() or "default"
