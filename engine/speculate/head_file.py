"""A trained draft on disk: matrices in 8 bits by the row, gains and words, and whose it is.

As quantised weights are kept (`engine.quant.weight_file`), so a damaged or foreign file is refused
before anything is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.drafters import NO_OTHERS, TrainedHead
from engine.model.llama import Llama
from engine.quant.grid import GridWeight
from engine.quant.rtn import rtn
from engine.quant.weight_file import Shaped, read_file, write_file
from engine.speculate.head import DraftHead, HeadShape
from engine.weight_format import ROW, Scheme

HEADS = Path(__file__).parent / "heads"
"""Those that ship with the project."""

SCHEME = Scheme(bits=8, group=ROW, symmetric=True)
MATRICES = ("gate", "up", "down")
LARGEST = 1 << 20
"""No count in a header passes it."""


def head_name(target: str) -> str:
    """What a head for the model of digest `target` is called in its file."""
    return f"draft for {target}"


def shipped_head(target: str) -> Path | None:
    """The file of the head that ships for the model of digest `target`; None where none does."""
    for path in sorted(HEADS.glob("*.safetensors")):
        if _header(path).get("name") == head_name(target):
            return path
    return None


def shipped_shape(target: str) -> TrainedHead | None:
    """The shape of the head that ships for the model of digest `target`; None where none does, or
    it cannot be read."""
    path = shipped_head(target)
    counts = None if path is None else _counts(_header(path))
    return (
        None if counts is None else TrainedHead(counts["hidden"], counts["inner"], counts["words"])
    )


def trained_head(target: str, network: Llama) -> DraftHead:
    """The head that ships for the model of digest `target`, beside its `network`.

    Raises:
        ValueError: none ships, or its file is damaged.
    """
    path = shipped_head(target)
    if path is None:
        raise ValueError(NO_OTHERS.why_not("trained"))
    shape, tensors, _ = read_head(path, target)
    return DraftHead(shape, tensors, network)


def write_head(
    path: Path,
    shape: HeadShape,
    tensors: Mapping[str, Tensor],
    target: str,
    about: Mapping[str, str],
) -> None:
    """Keep a head for the model of digest `target`. Raises OSError."""
    kept: dict[str, Tensor] = {"words": tensors["words"].to(torch.int32)}
    for name in shape.tensors(0):
        if name in MATRICES:
            grid = rtn(tensors[name], SCHEME, name)
            kept[f"codes/{name}"], kept[f"scale/{name}"] = grid.codes, grid.scale
        elif name != "words":
            kept[name] = tensors[name].to(torch.float32)
    words = {"hidden": str(shape.hidden), "inner": str(shape.inner), "steps": str(shape.steps)}
    words["words"] = str(len(tensors["words"]))
    write_file(path, head_name(target), kept, {**about, **words})


def read_head(path: Path, target: str) -> tuple[HeadShape, dict[str, Tensor], dict[str, str]]:
    """Shape, tensors as `DraftHead` takes them, and the words kept with them.

    Raises:
        ValueError: no such file, a damaged one, or one made for another model.
    """
    counts = _counts(_header(path))
    if counts is None:
        raise ValueError(f"{path.name} is not a trained draft")
    shape = HeadShape(counts["hidden"], counts["inner"], counts["steps"])
    found = read_file(path, head_name(target), _shapes(shape, counts["words"]), {})
    if found is None:
        raise ValueError(f"{path.name} is damaged, or was not trained for this model")
    kept, words = found
    tensors = {"words": kept["words"].long()}
    for name in shape.tensors(0):
        if name in MATRICES:
            grid = GridWeight(kept[f"codes/{name}"], kept[f"scale/{name}"], None, SCHEME)
            tensors[name] = grid.dequantise()
        elif name != "words":
            tensors[name] = kept[name]
    return shape, tensors, words


def _shapes(shape: HeadShape, words: int) -> dict[str, Shaped]:
    found: dict[str, Shaped] = {}
    for name, size in shape.tensors(words).items():
        if name in MATRICES:
            found[f"codes/{name}"] = ("U8", size)
            found[f"scale/{name}"] = ("F32", (size[0], 1))
        else:
            found[name] = ("I32" if name == "words" else "F32", size)
    return found


def _counts(about: Mapping[str, str]) -> dict[str, int] | None:
    """The numbers in a header; None where it is not that of a trained draft."""
    try:
        counts = {name: int(about[name]) for name in ("hidden", "inner", "steps", "words")}
    except (KeyError, ValueError):
        return None
    return counts if all(0 < count <= LARGEST for count in counts.values()) else None


def _header(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError):
        return {}
