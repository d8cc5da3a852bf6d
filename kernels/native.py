"""C functions for this processor: compiled by the machine's own compiler when first wanted.

A source stands beside the operation it is about, shares `native.h`, and gives one small library for
each set of definitions. Libraries are kept in a folder if one is named (`keep_in`), under a digest
of all that went into them: source, definitions, compiler and processor; else they live as long as
the process. Whoever asks for a function tries it before use: what comes from a disk or a compiler
is believed by its results.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

COMPILERS = ("cc", "gcc", "clang")

SWITCH = "LATENCY_WALL_COMPILE"
"""Environment variable: "off" keeps to plain torch."""

FEW_ROWS = 16
"""Rows up to which what is done with rows alone runs in C, where there is C: beyond, its arithmetic
costs more than calls do, and torch's threads share it.

Two Zen 3 cores, the default model's shapes in bfloat16, µs in C | in torch; gates decide:

    rows        1           8           16          24          64
    norm        9 | 15     13 | 29     15 | 31     17 | 36     28 | 58
    rotation   13 | 34     12 | 38     15 | 47     18 | 56     41 | 95
    gate       13 | 12     31 | 36     49 | 56     71 | 49    192 | 123
    sum         5 | 6       5 | 7       6 | 8       7 | 10     11 | 16
"""

HEADER = Path(__file__).with_name("native.h")

NUMBERS: Mapping[torch.dtype, str] = {
    torch.float32: "FLOAT32",
    torch.bfloat16: "BFLOAT16",
    torch.float16: "FLOAT16",
}
"""What defines the header's type of numbers."""

_COMMON = ("-O3", "-ffp-contract=fast", "-fno-math-errno", "-shared", "-fPIC", f"-I{HEADER.parent}")

_ATTEMPTS = (("-march=native", "-fopenmp"), ("-march=native",), ("-mcpu=native",), ())
"""Flags beside the common ones: not every compiler knows its processor, or has OpenMP's threads."""

_PATIENCE = 120.0
"""Seconds a compiler may take."""

Function = Callable[..., None]
"""A C function; threads of Python run on while it does."""

_folder: Path | None = None


class NativeError(RuntimeError):
    """No compiler is there or wanted, or none of its attempts gave a library that loads."""


def keep_in(folder: Path | None) -> None:
    """Keep libraries in `folder` from now on; None: keep none."""
    global _folder
    _folder = folder


def compiler() -> str | None:
    """A C compiler, where one is on the path and wanted; nothing is compiled to find out."""
    if os.environ.get(SWITCH) == "off":
        return None
    return next((found for name in COMPILERS if (found := shutil.which(name))), None)


def functions(
    source: Path, signatures: Mapping[str, str], dtype: torch.dtype, **definitions: int
) -> dict[str, Function]:
    """Functions of `source` by name, for numbers of `dtype`; they return nothing.

    A signature is a letter an argument: p an address or None, l a long, i an int, f a float.

    Raises:
        NativeError: they cannot be had.
    """
    found = library(source, {NUMBERS[dtype]: 1, **definitions})
    made: dict[str, Function] = {}
    for name, letters in signatures.items():
        try:
            one = getattr(found, name)
        except AttributeError:
            raise NativeError(f"{source.name} gave a library without {name}") from None
        one.argtypes = [_KINDS[letter] for letter in letters]
        one.restype = None
        made[name] = cast(Function, one)
    return made


_KINDS: Mapping[str, type[ctypes._SimpleCData[Any]]] = {
    "p": ctypes.c_void_p,
    "l": ctypes.c_long,
    "i": ctypes.c_int,
    "f": ctypes.c_float,
}


def tried(
    source: Path,
    name: str,
    arguments: str,
    dtype: torch.dtype,
    right: Callable[[Function], bool],
    **definitions: int,
) -> Function | None:
    """The function `name`, if `right` finds its results so; None where it does not, or there is
    none. `arguments` as a signature of `functions`."""
    try:
        found = functions(source, {name: arguments}, dtype, **definitions)[name]
    except NativeError:
        return None
    return found if right(found) else None


def address_of(function: Function) -> int | None:
    """Where it lies, for other functions in C to call."""
    return ctypes.cast(cast(Any, function), ctypes.c_void_p).value


def data_of(tensor: Tensor | None) -> int | None:
    """Where its numbers lie; good as long as it lives."""
    return None if tensor is None else tensor.data_ptr()


def probe(*shape: int, dtype: torch.dtype) -> Tensor:
    """Normal numbers to try a function on."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


def agrees(found: Tensor, true: Tensor) -> bool:
    """Whether a result is the reference's within the rounding of its type."""
    most = _TOLERANCE[found.dtype] * true.to(torch.float32).abs().max()
    return bool((found.to(torch.float32) - true.to(torch.float32)).abs().max() <= most)


_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def library(source: Path, definitions: Mapping[str, int]) -> ctypes.CDLL:
    """The library that `source` gives with `definitions`.

    Raises:
        NativeError: as said there.
    """
    chosen = compiler()
    if chosen is None:
        raise NativeError(f"no C compiler is on the path, or {SWITCH} is off")
    defined = tuple(f"-D{name}={value}" for name, value in definitions.items())
    kept = None if _folder is None else _folder / f"{_digest(source, defined, chosen)}.so"
    if kept is not None and kept.is_file():
        try:
            return ctypes.CDLL(str(kept))
        except OSError:
            pass  # damaged: it is made again
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "native.so"
        loaded = _make(chosen, source, defined, made)
        if kept is not None:
            _keep(made, kept)
    return loaded  # the file of a loaded library may go


def _make(chosen: str, source: Path, defined: Sequence[str], made: Path) -> ctypes.CDLL:
    fault: Exception | None = None
    for flags in _ATTEMPTS:
        command = [chosen, *_COMMON, *flags, *defined, str(source), "-o", str(made)]
        try:
            subprocess.run(
                command,
                check=True,
                timeout=_PATIENCE,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            return ctypes.CDLL(str(made))
        except (OSError, subprocess.SubprocessError) as error:
            fault = error
    raise NativeError(f"{chosen} gave no library of {source.name}") from fault


def _keep(made: Path, kept: Path) -> None:
    """Whole or not at all; a disk that refuses costs a second at the next start, nothing else."""
    part = kept.with_name(f"{kept.name}.{os.getpid()}")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, part)
        part.replace(kept)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def _digest(source: Path, defined: Sequence[str], chosen: str) -> str:
    found = Path(chosen).resolve()
    stamp = found.stat()
    parts = (
        *_texts(source),
        repr((_COMMON, _ATTEMPTS, tuple(defined))),
        f"{found} {stamp.st_size} {stamp.st_mtime_ns}",
        _processor(),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _texts(source: Path) -> list[str]:
    """A source, and all that it includes by name."""
    found = [source.read_text(encoding="utf-8")]
    for name in re.findall(r'^#include "(.+)"', found[0], re.MULTILINE):
        found += _texts(HEADER.parent / name)
    return found


@cache
def _processor() -> str:
    """What "native" means here."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    names = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({one for one in text.splitlines() if one.startswith(names)}))
