"""Finding a model by what a player calls it: "default", a path, an added name, a hub name.

Torch-free: the interface lists and adds models, the engine process loads them.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.clean import clean
from engine.model.errors import ModelError, fault
from engine.model.fetch import DEFAULT_WHEEL, default_path
from engine.model.hub import HUB_PREFIX, fetch_from_hub
from engine.model.json_files import read_object
from engine.model.layout import inspect_folder, inspect_gguf
from engine.paths import models_home

__all__ = ["ModelError", "ModelSource", "add_model", "find_model", "list_models"]

Kind = Literal["gguf", "folder"]

DEFAULT = "default"
_DEFAULT_NAMES = (DEFAULT, DEFAULT_WHEEL.model_label)
_KINDS: Mapping[str, Kind] = {"gguf": "gguf", "folder": "folder"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class ModelSource:
    """Where a model lies: a GGUF file or a Hugging Face folder, and what it is called."""

    kind: Kind
    path: Path
    name: str


def find_model(spec: str) -> ModelSource:
    """The model that `spec` means: "default", a name added before, a path, or `hub:org/name`.

    An added name wins over a file of the same name; `./name` means the file.

    Raises:
        ModelError: nothing is there, or it is not a model's file or folder; says what would be.
    """
    if spec in _DEFAULT_NAMES:
        return _default()
    if spec.startswith(HUB_PREFIX):
        return _from_hub(spec)
    if _NAME.fullmatch(spec) and _entry_path(spec).exists():
        return _added(spec)
    path = _existing(spec)
    if path is not None:
        return _at(path)
    names = [DEFAULT, *(source.name for source in _added_models())]
    nearest = difflib.get_close_matches(spec, names, n=1, cutoff=0.0)[0]
    raise ModelError(
        f"no model is called {clean(spec, 200, True)!r} and no file or folder has that path; "
        f"known names: {', '.join(names)}; nearest: {nearest}"
    )


def add_model(path: Path | str, name: str | None = None) -> ModelSource:
    """Check that the model at `path`, or `hub:org/name`, can be read, and remember it by a name.

    The name is made from the file's own where none is given. Adding the same path again under the
    same name changes nothing.

    Raises:
        ModelError: the model cannot be read, or the name is not legal or means another model.
    """
    if isinstance(path, str) and path.startswith(HUB_PREFIX):
        found = _from_hub(path)
        own_name = _legal_name(found.name.partition("@")[0].rpartition("/")[2])
    else:
        found = _at(_existing(str(path)) or Path(path))
        own_name = _legal_name(found.path.resolve().name.removesuffix(".gguf"))
    source = ModelSource(found.kind, found.path.resolve(), own_name if name is None else name)
    if source.name in _DEFAULT_NAMES or not _NAME.fullmatch(source.name):
        raise ModelError(
            f"{clean(source.name, 80, True)!r} cannot name a model; legal: up to 64 letters, "
            f"digits, dots, dashes and underscores, and none of {', '.join(_DEFAULT_NAMES)}"
        )
    if source.kind == "gguf":
        inspect_gguf(source.path)
    else:
        inspect_folder(source.path)
    entry = _entry_path(source.name)
    if entry.exists():
        before = _added(source.name)
        if before.path != source.path:
            raise ModelError(
                f"{source.name!r} already names {before.path}; give the new model another name"
            )
        return before
    _write_entry(entry, source)
    return source


def list_models() -> tuple[ModelSource, ...]:
    """The models that are here now: the default one where it was fetched, then the added ones."""
    here = default_path().is_file()
    default = (ModelSource("gguf", default_path(), DEFAULT_WHEEL.model_label),) if here else ()
    return default + _added_models()


def _default() -> ModelSource:
    path = default_path()
    if not path.is_file():
        raise fault(path, "the default model is not here yet; `latency-wall model fetch` gets it")
    return ModelSource("gguf", path, DEFAULT_WHEEL.model_label)


def _existing(spec: str) -> Path | None:
    """The path that `spec` spells, where something is there; names can be no paths at all."""
    try:
        path = Path(spec).expanduser()
        return path if spec and path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a NUL byte, no such user
        return None


def _at(path: Path) -> ModelSource:
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise fault(path, "is a folder without config.json, so no Hugging Face model")
        return ModelSource("folder", path, path.resolve().name)
    if not path.is_file():
        raise fault(path, "is missing" if not path.exists() else "is not a regular file")
    if path.suffix == ".gguf":
        return ModelSource("gguf", path, path.stem)
    if path.suffix == ".safetensors" or path.name == "config.json":
        raise fault(path, "is a part of a model; name the folder that holds it")
    if path.suffix in (".bin", ".pt", ".pth", ".pkl", ".ckpt"):
        raise fault(
            path,
            "is a pickle, which can run any code when it is opened; only GGUF and "
            "safetensors are read",
        )
    raise fault(path, "is no model; a .gguf file or a folder with config.json would be")


def _from_hub(spec: str) -> ModelSource:
    name = spec.removeprefix(HUB_PREFIX)
    return ModelSource("folder", fetch_from_hub(name), name)


def _legal_name(text: str) -> str:
    """`text` with what a name may not hold made into dashes; may be empty."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64]


def _entry_path(name: str) -> Path:
    return models_home() / "added" / f"{name}.json"


def _added(name: str) -> ModelSource:
    entry = read_object(_entry_path(name))
    kind = entry.text("kind")
    if kind not in _KINDS:
        raise fault(entry.path, f"names a model of kind {kind!r}; legal: {', '.join(_KINDS)}")
    path = Path(entry.text("path"))
    if not path.exists():
        raise ModelError(f"{name!r} names {path}, where nothing is any more")
    return ModelSource(_KINDS[kind], path, name)


def _added_models() -> tuple[ModelSource, ...]:
    """Entries whose model is still there; `find_model` says what is wrong with the others."""
    sources: list[ModelSource] = []
    for entry in sorted((models_home() / "added").glob("*.json")):
        try:
            sources.append(_added(entry.stem))
        except ModelError:
            continue
    return tuple(sources)


def _write_entry(entry: Path, source: ModelSource) -> None:
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        part = entry.with_suffix(f".{os.getpid()}.part")
        with part.open("w", encoding="utf-8") as file:
            json.dump({"kind": source.kind, "path": str(source.path)}, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(entry)
    except OSError as error:
        raise fault(entry, f"cannot be written ({error.strerror or error})") from None
