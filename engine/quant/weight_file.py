"""A file of quantised weights: whole or not there, and refused unless it reads back as written.

safetensors, with codes packed to their width, scales and zeros as bfloat16 (which they are rounded
to), and in the header the name it was written under, words of the writer's, and a SHA-256 over all
of it. It is written beside its place and renamed into it, so that two processes that write the same
file at once disturb neither each other nor who reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.quant.grid import GridWeight
from engine.quant.pack import pack_codes, packed_width, unpack_codes
from engine.quant.weights import matrix_name
from engine.recipe import Matrix
from engine.weight_format import groups_of

FORMAT = "latency-wall quantised 1"

_REFUSED = (OSError, SafetensorError, ValueError, KeyError, RuntimeError)
"""What a file that is damaged, foreign or of another shape raises while it is read."""

Shaped = tuple[str, tuple[int, ...]]
"""A type as safetensors spells it, and a shape."""


def write_file(
    path: Path, name: str, tensors: Mapping[str, Tensor], words: Mapping[str, str]
) -> None:
    """Keep `tensors` and `words` under `path` as the file `name`. Raises OSError."""
    # Clones: tensors that share memory, or lie in another order, cannot be written.
    whole = {n: t.clone(memory_format=torch.contiguous_format) for n, t in tensors.items()}
    about = {**words, "format": FORMAT, "name": name}
    about["digest"] = _digest(about, whole)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=path.stem[:16], suffix=".part", dir=path.parent)
    os.close(handle)
    try:
        save_file(whole, part, metadata=about)
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except SafetensorError as error:  # its word for a disk that is full
        raise OSError(str(error)) from None
    finally:
        Path(part).unlink(missing_ok=True)


def read_file(
    path: Path, name: str, wanted: Mapping[str, Shaped], allowed: Mapping[str, Shaped]
) -> tuple[dict[str, Tensor], dict[str, str]] | None:
    """Tensors and words of the file `name` as they were written; None where there is none.

    It must hold every tensor of `wanted`, and may hold those of `allowed`: types and shapes are
    compared before anything is loaded. A file that was read counts as used now.
    """
    try:
        with safe_open(path, framework="pt") as file:
            found = _read(file, name, wanted, allowed)
    except _REFUSED:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return found


def grid_tensors(grids: Mapping[str, GridWeight]) -> dict[str, Tensor]:
    """Grids as a file holds them: codes/NAME, scale/NAME and, where there are zeros, zero/NAME."""
    found: dict[str, Tensor] = {}
    for name, grid in grids.items():
        found[f"codes/{name}"] = pack_codes(grid.codes, grid.scheme.bits)
        found[f"scale/{name}"] = grid.scale.to(torch.bfloat16)
        if grid.zero is not None:
            found[f"zero/{name}"] = grid.zero.to(torch.bfloat16)
    return found


def grid_shapes(matrices: Iterable[Matrix]) -> Iterator[tuple[str, Shaped]]:
    """What `grid_tensors` makes of the quantised ones among `matrices`, and no more."""
    for matrix in matrices:
        scheme = matrix.scheme
        if scheme is not None:
            name, steps = matrix_name(matrix), (matrix.rows, groups_of(scheme, matrix.columns))
            yield f"codes/{name}", ("U8", (matrix.rows, packed_width(matrix.columns, scheme.bits)))
            yield f"scale/{name}", ("BF16", steps)
            if not scheme.symmetric:
                yield f"zero/{name}", ("BF16", steps)


def grids_of(tensors: Mapping[str, Tensor], matrices: Iterable[Matrix]) -> dict[str, GridWeight]:
    """The grids that `grid_tensors` was given, of the quantised ones among `matrices`."""
    found: dict[str, GridWeight] = {}
    for matrix in matrices:
        scheme = matrix.scheme
        if scheme is not None:
            name = matrix_name(matrix)
            codes = unpack_codes(tensors[f"codes/{name}"], scheme.bits, matrix.columns)
            zero = None if scheme.symmetric else tensors[f"zero/{name}"].to(torch.float32)
            scale = tensors[f"scale/{name}"].to(torch.float32)
            found[name] = GridWeight(codes, scale, zero, scheme)
    return found


def _read(
    file: Any, name: str, wanted: Mapping[str, Shaped], allowed: Mapping[str, Shaped]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Raises one of `_REFUSED`."""
    about = dict(file.metadata() or {})
    if about.get("format") != FORMAT or about.get("name") != name:
        raise ValueError("not a file of quantised weights, or not by this name")
    names = set(file.keys())
    legal = {**allowed, **wanted}
    if not wanted.keys() <= names <= legal.keys():
        raise ValueError("tensors are missing, or too many")
    for key in names:
        part = file.get_slice(key)
        if (part.get_dtype(), tuple(part.get_shape())) != legal[key]:
            raise ValueError(f"{key} is not {legal[key]}")
    # Clones: what safetensors gives may be a window on the file, which may be replaced.
    tensors = {key: file.get_tensor(key).clone() for key in sorted(names)}
    digest = about.pop("digest", "")
    if digest != _digest(about, tensors):
        raise ValueError("the contents are not those that were written")
    return tensors, about


def _digest(about: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the header's words and every tensor: name, type, shape and bytes."""
    found = hashlib.sha256(repr(sorted(about.items())).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        found.update(tensor.view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
