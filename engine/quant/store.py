"""Quantised weights on disk: made once for a model, a recipe and a precision, found ever after.

A file is named by `Recipe.digest`; its report stands in its header. What does not read back as it
must (`weight_file`) is made again. A method that takes minutes leaves every layer it has finished
in a folder beside, and goes on from there when it is asked again. The whole keeps to a bound:
whoever was used longest ago goes first.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
from torch import Tensor

from engine.model.config import ModelConfig
from engine.model.tensor_names import expected_shapes
from engine.paths import cache_home
from engine.quant.calibrate import Encoder, calibration_ids
from engine.quant.grid import GridWeight
from engine.quant.quantise import OnPressed, quantise
from engine.quant.walk import nothing
from engine.quant.weight_file import (
    grid_shapes,
    grid_tensors,
    grids_of,
    read_file,
    write_file,
)
from engine.quant.weights import QuantisedWeights
from engine.quantised import Quantised
from engine.recipe import Matrix, Recipe, matrices

MOST_BYTES = 4 << 30
"""Of all files together."""

STALE_PART, STALE_LAYERS = 3_600.0, 7 * 86_400.0
"""Seconds after which a half-written file belongs to nobody, and unfinished layers to nobody who
will come back."""


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
    fresh: bool = False,
) -> QuantisedWeights:
    """The weights that `recipe` makes of a model: from disk, else made and laid there.

    Weights from disk say so in their report (`cached`, no seconds). `fresh` makes them whatever
    lies there. A folder that cannot be written, or a full disk, costs the next process the work,
    and this one nothing.

    Raises:
        ValueError: as `quantise`. Whatever `check` raises to stop: no weights are kept then, but
            the finished layers of a method that can go on from them.
    """
    home = quantised_home() if folder is None else folder
    path = home / f"{recipe.digest(loaded.digest, precision)}.safetensors"
    layers = FinishedLayers(path.with_suffix(".layers"), loaded.config, recipe)
    if fresh:
        layers.clear()
    found = None if fresh else read(path, loaded.config, recipe)
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
        finished=layers,
    )
    with contextlib.suppress(OSError):
        write(path, made)
        layers.clear()
        make_room(home, most, path)
    return made


def write(path: Path, weights: QuantisedWeights) -> None:
    """Keep the weights under `path`, whole or not at all. Raises OSError."""
    tensors = {f"tensor/{name}": tensor for name, tensor in weights.tensors.items()}
    report = msgspec.json.encode(weights.report).decode()
    write_file(path, path.stem, grid_tensors(weights.grids) | tensors, {"report": report})


def read(path: Path, model: ModelConfig, recipe: Recipe) -> QuantisedWeights | None:
    """The weights as they were written; None where there are none, or not those of `recipe`."""
    wanted = dict(grid_shapes(matrices(recipe, model)))
    folded = {f"tensor/{name}": ("F32", shape) for name, shape in expected_shapes(model).items()}
    found = read_file(path, path.stem, wanted, folded)
    if found is None:
        return None
    tensors, words = found
    try:
        report = msgspec.json.decode(words.get("report", ""), type=Quantised)
    except msgspec.DecodeError:
        return None
    return QuantisedWeights(
        grids_of(tensors, matrices(recipe, model)),
        msgspec.structs.replace(report, seconds=0.0, cached=True),
        {name.removeprefix("tensor/"): tensors[name] for name in tensors if name in folded},
    )


@dataclass(frozen=True)
class FinishedLayers:
    """The layers of a recipe that a job has finished, each in a file of `folder`, so that a job
    that was stopped can go on. `engine.quant.method.Finished`."""

    folder: Path
    model: ModelConfig
    recipe: Recipe

    def load(self, layer: int) -> dict[str, GridWeight] | None:
        """Grids by their names in the layer (qkv, o, gate_up, down); None where it is not here."""
        found = read_file(
            self._path(layer), self._name(layer), dict(grid_shapes(self._matrices(layer))), {}
        )
        if found is None:
            return None
        grids = grids_of(found[0], self._matrices(layer))
        return {name.rpartition(".")[2]: grid for name, grid in grids.items()}

    def save(self, layer: int, grids: Mapping[str, GridWeight]) -> None:
        """Keep a layer; where that cannot be, it is made again."""
        named = {f"layers.{layer}.{name}": grid for name, grid in grids.items()}
        with contextlib.suppress(OSError):
            write_file(self._path(layer), self._name(layer), grid_tensors(named), {})

    def clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, layer: int) -> Path:
        return self.folder / f"{layer}.safetensors"

    def _name(self, layer: int) -> str:
        return f"{self.folder.stem} layer {layer}"

    def _matrices(self, layer: int) -> list[Matrix]:
        return [one for one in matrices(self.recipe, self.model) if one.layer == layer]


def make_room(home: Path, most: int, keep: Path) -> None:
    """Remove the files used longest ago until all together have at most `most` bytes, but never
    `keep`; and what jobs that were killed or given up left behind.

    Other processes may read and tidy at the same time. Raises OSError where `home` cannot be read.
    """
    now = time.time()
    found: list[tuple[float, int, Path]] = []
    for path in home.iterdir():
        with contextlib.suppress(OSError):
            state = path.stat()
            age = now - state.st_mtime
            if path.suffix == ".safetensors":
                found.append((state.st_mtime, state.st_size, path))
            elif path.suffix == ".part" and age > STALE_PART:
                path.unlink()
            elif path.suffix == ".layers" and age > STALE_LAYERS:
                shutil.rmtree(path)
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= most:
            return
        if path != keep:
            with contextlib.suppress(OSError):  # on some systems a file that is being read stays
                path.unlink(missing_ok=True)
                total -= size
