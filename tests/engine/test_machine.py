"""The machine's profile on disk: what is kept, what is found, what a damaged file does."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from engine.machine import (
    Ceilings,
    MachineProfile,
    ThreadTiming,
    latest_profile,
    load_profile,
    profile_path,
    save_profile,
    worker_environment,
)

PROFILE = MachineProfile(
    version=1,
    fingerprint="cpu | Box | 2p2l | AVX2 | torch 2.13.0+cpu",
    measured_at="2025-11-29T12:00:00Z",
    threads=2,
    wait_policy="active",
    ceilings=Ceilings(2.2e10, {"float32": 3.7e11}, 4e-6),
    noise=0.01,
    calibration=(ThreadTiming(2, "active", 0.03),),
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path))


def named(fingerprint: str, age: int) -> MachineProfile:
    """A saved profile whose file is `age` seconds old in the order of these tests."""
    profile = msgspec.structs.replace(PROFILE, fingerprint=fingerprint)
    path = save_profile(profile)
    os.utime(path, (1_000_000 - age, 1_000_000 - age))
    return profile


def test_a_profile_comes_back_whole_and_leaves_nothing_beside_it() -> None:
    path = save_profile(PROFILE)
    assert load_profile(PROFILE.fingerprint) == PROFILE
    assert list(path.parent.iterdir()) == [path]


def test_another_fingerprint_has_another_file() -> None:
    save_profile(PROFILE)
    assert load_profile("cpu | Another box") is None
    assert profile_path("a") != profile_path("b")


def test_a_fingerprint_cannot_leave_the_folder(tmp_path: Path) -> None:
    assert profile_path("../../etc/passwd\0").parent == tmp_path / "machines"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"[]",
        b'{"version": 1}',
        msgspec.json.encode(PROFILE)[:-20],
        msgspec.json.encode(msgspec.structs.replace(PROFILE, version=99)),
    ],
)
def test_a_file_that_cannot_be_read_means_measure_again(content: bytes) -> None:
    path = save_profile(PROFILE)
    path.write_bytes(content)
    assert load_profile(PROFILE.fingerprint) is None
    assert latest_profile("cpu", "2.13.0+cpu") is None
    save_profile(PROFILE)
    assert load_profile(PROFILE.fingerprint) == PROFILE


def test_the_latest_profile_of_this_device_and_torch() -> None:
    named("cpu | Old box | 2p2l | AVX2 | torch 2.13.0+cpu", age=50)
    wanted = named("cpu | This box | 2p2l | AVX2 | torch 2.13.0+cpu", age=30)
    named("cpu | This box | 2p2l | AVX2 | torch 2.12.0+cpu", age=20)
    named("cuda | This box | 2p2l | AVX2 | torch 2.13.0+cpu", age=10)
    named("a fingerprint of another kind", age=5)
    assert latest_profile("cpu", "2.13.0+cpu") == wanted
    assert latest_profile("mps", "2.13.0+cpu") is None


def test_without_a_folder_there_is_no_profile() -> None:
    assert latest_profile("cpu", "2.13.0") is None
    assert load_profile("x") is None


def test_the_environment_of_a_policy() -> None:
    assert worker_environment("passive") == {"OMP_WAIT_POLICY": "passive"}
