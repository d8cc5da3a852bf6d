"""Quantised weights on disk: made once for a model, a recipe and a precision, found ever after.

A file is named by `Recipe.digest` and holds codes packed to their width, scales, zeros, what a fold
changed, and the report as JSON in its header. It is written beside its place and renamed into it.
What does not read back as it must (damaged, of another version, of other shapes) is made again.
The folder keeps to a bound: whoever was used longest ago goes first.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from engine.model.config import ModelConfig
from engine.paths import cache_home
from engine.quant.calibrate import Encoder, calibration_ids
from engine.quant.grid import GridWeight
from engine.quant.pack import pack_codes, unpack_codes
from engine.quant.quantise import OnPressed, quantise
from engine.quant.walk import nothing
from engine.quant.weights import QuantisedWeights, matrix_name
from engine.quantised import Quantised
from engine.recipe import Matrix, Recipe, matrices
from engine.weight_format import Scheme, groups_of

MOST_BYTES = 4 << 30
"""Of all files together."""

FORMAT = "1"


class Model(Protocol):
    """The part of a loaded model that is quantised."""

    @property
    def config(self) -> ModelConfig: ...

    @property
    def tensors(self) -> Mapping[str, Tensor]: ...

    @property
    def digest(self) -> str: ...

    @property
    def tokenizer(self) -> Encoder: ...


def quantised_home() -> Path:
    return cache_home() / "quantised"


def quantised_weights(
    loaded: Model,
    recipe: Recipe,
    precision: str,
    *,
    on_pressed: OnPressed = lambda *_: None,
    check: Callable[[], None] = nothing,
    folder: Path | None = None,
    most: int = MOST_BYTES,
) -> QuantisedWeights:
    """The weights that `recipe` makes of a model: from disk, else made and laid there.

    A folder that cannot be written costs the next process the work, and this one nothing.

    Raises:
        ValueError: as `quantise`. Whatever `check` raises to stop.
    """
    home = quantised_home() if folder is None else folder
    path = home / f"{recipe.digest(loaded.digest, precision)}.safetensors"
    found = load(path, loaded.config, recipe)
    if found is not None:
        return found
    ids = calibration_ids(loaded.tokenizer, recipe.calibration) if recipe.calibration else ()
    made = quantise(
        loaded.tensors,
        loaded.config,
        recipe,
        calibration_ids=ids,
        on_pressed=on_pressed,
        check=check,
    )
    with contextlib.suppress(OSError):
        save(path, made)
        make_room(home, most, path)
    return made


def save(path: Path, weights: QuantisedWeights) -> None:
    """Write the weights under their name, whole or not at all. Raises OSError."""
    tensors: dict[str, Tensor] = {f"tensor/{n}": t.contiguous() for n, t in weights.tensors.items()}
    for name, grid in weights.grids.items():
        tensors[f"codes/{name}"] = pack_codes(grid.codes, grid.scheme.bits)
        tensors[f"scale/{name}"] = grid.scale.to(torch.bfloat16)
        if grid.zero is not None:
            tensors[f"zero/{name}"] = grid.zero.to(torch.bfloat16)
    path.parent.mkdir(parents=True, exist_ok=True)
    report = msgspec.json.encode(weights.report).decode()
    handle, beside = tempfile.mkstemp(dir=path.parent, suffix=".part")
    os.close(handle)
    try:
        # Clones: tensors that share memory (views of one matrix) cannot be written.
        save_file(
            {name: tensor.clone() for name, tensor in tensors.items()},
            beside,
            metadata={"format": FORMAT, "report": report},
        )
        with open(beside, "rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException as error:
        Path(beside).unlink(missing_ok=True)
        if isinstance(error, SafetensorError):  # how safetensors tells of a full disk
            raise OSError(str(error)) from None
        raise


def load(path: Path, model: ModelConfig, recipe: Recipe) -> QuantisedWeights | None:
    """The weights as they were saved; None where there are none, or not those of `recipe`."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            if about.get("format") != FORMAT:
                return None
            names = set(file.keys())
            report = msgspec.json.decode(about["report"], type=Quantised)
            grids = {
                matrix_name(matrix): _grid(file.get_tensor, names, matrix)
                for matrix in _quantised(recipe, model)
            }
            tensors = {
                name.removeprefix("tensor/"): file.get_tensor(name)
                for name in sorted(names)
                if name.startswith("tensor/")
            }
    except (OSError, SafetensorError, KeyError, ValueError, msgspec.MsgspecError):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    report = msgspec.structs.replace(report, seconds=0.0, cached=True)
    return QuantisedWeights(grids, report, tensors)


def make_room(home: Path, most: int, keep: Path) -> None:
    """Remove files until all together have at most `most` bytes, `keep` last of all.

    Raises OSError only where the folder itself cannot be read: two processes may tidy at once.
    """
    found: list[tuple[float, int, Path]] = []
    for path in home.glob("*.safetensors"):
        with contextlib.suppress(FileNotFoundError):
            state = path.stat()
            found.append((state.st_mtime, state.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= most:
            return
        if path != keep:
            path.unlink(missing_ok=True)
            total -= size


def _quantised(recipe: Recipe, model: ModelConfig) -> Iterator[Matrix]:
    return (matrix for matrix in matrices(recipe, model) if matrix.scheme is not None)


def _grid(get: Callable[[str], Tensor], names: set[str], matrix: Matrix) -> GridWeight:
    """One matrix as its scheme wants it. Raises ValueError or KeyError where it is not there."""
    name, scheme = matrix_name(matrix), matrix.scheme
    assert scheme is not None
    parts = {f"codes/{name}", f"scale/{name}"} | (set() if scheme.symmetric else {f"zero/{name}"})
    if not parts <= names:
        raise KeyError(name)
    packed = get(f"codes/{name}")
    if packed.dtype != torch.uint8 or packed.shape[0] != matrix.rows:
        raise ValueError(f"{name}: codes of {packed.dtype} {list(packed.shape)}")
    codes = unpack_codes(packed, scheme.bits, matrix.columns)
    zero = None if scheme.symmetric else _steps(get(f"zero/{name}"), matrix, scheme)
    return GridWeight(codes, _steps(get(f"scale/{name}"), matrix, scheme), zero, scheme)


def _steps(kept: Tensor, matrix: Matrix, scheme: Scheme) -> Tensor:
    if kept.shape != (matrix.rows, groups_of(scheme, matrix.columns)):
        raise ValueError(f"steps {list(kept.shape)} of a matrix of {matrix.rows} rows")
    return kept.to(torch.float32)
