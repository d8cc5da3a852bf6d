"""What the safetensors files of a folder say they hold, checked against their size.

Layout: header length u64, a JSON object of name -> {dtype, shape, data_offsets}, then the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engine.model.errors import ModelError, fault
from engine.model.json_files import read_object, shown
from engine.model.tensor_names import Shape

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 32 * 2**20
MAX_DIMENSIONS = 4

ITEM_BYTES: Mapping[str, int] = {"F32": 4, "F16": 2, "BF16": 2}


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a safetensors file; `file` is the shard that holds it."""

    file: Path
    dtype: str
    shape: Shape


def read_folder(folder: Path) -> dict[str, StoredTensor]:
    """Name -> place and shape of every tensor in a folder, single file or shards.

    Raises:
        ModelError: no safetensors files (pickled weights are refused), a shard that is missing or
            lies outside the folder, or a header that cannot be true of its file.
    """
    if (folder / SINGLE).exists():
        return read_header(folder / SINGLE)
    if not (folder / INDEX).exists():
        pickled = sorted(path.name for path in folder.glob("*.bin")) + sorted(
            path.name for path in folder.glob("*.pt*")
        )
        if pickled:
            raise fault(
                folder,
                f"holds its weights as {pickled[0]!r}, a pickle, which can run any code when it "
                f"is opened; only safetensors are read",
            )
        raise fault(folder, f"holds neither {SINGLE} nor {INDEX}")
    index = read_object(folder / INDEX, MAX_HEADER_BYTES)
    weight_map = index.child("weight_map").values
    shards: dict[str, dict[str, StoredTensor]] = {}
    tensors: dict[str, StoredTensor] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not _is_plain_name(shard):
            raise fault(
                index.path,
                f"names {shown(shard)} as the shard of {name!r}; a shard is a .safetensors file "
                f"in the same folder",
            )
        if shard not in shards:
            shards[shard] = read_header(folder / shard)
        if name not in shards[shard]:
            raise fault(folder / shard, f"lacks tensor {name!r}, which {INDEX} says it holds")
        tensors[name] = shards[shard][name]
    return tensors


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Name -> shape and type of every tensor of one safetensors file.

    Raises:
        ModelError: names the file and the first fault found.
    """
    raw, data_bytes = _header_bytes(path)
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        fields.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(entry, type=_Entry) for name, entry in fields.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise fault(path, f"has a header that is not a list of tensors: {error}") from None
    for name, entry in entries.items():
        _check_entry(path, name, entry, data_bytes)
    ordered = sorted(entries.items(), key=lambda item: item[1].data_offsets)
    for (before, first), (after, second) in zip(ordered, ordered[1:], strict=False):
        if second.data_offsets[0] < first.data_offsets[1]:
            raise fault(path, f"tensors {before!r} and {after!r} overlap")
    return {name: StoredTensor(path, entry.dtype, entry.shape) for name, entry in entries.items()}


def _header_bytes(path: Path) -> tuple[bytes, int]:
    """The header's JSON, and how many bytes of data follow it."""
    try:
        if not path.is_file():
            raise fault(path, "is missing" if not path.exists() else "is not a regular file")
        size = path.stat().st_size
        with path.open("rb") as file:
            first = file.read(8)
            length = int.from_bytes(first, "little")
            if len(first) < 8 or length > size - 8:
                raise fault(
                    path,
                    f"is {size} bytes long and claims a header of {length}: it was cut short, or "
                    f"is no safetensors file",
                )
            if length > MAX_HEADER_BYTES:
                raise fault(
                    path, f"claims a header of {length} bytes; at most {MAX_HEADER_BYTES} are read"
                )
            return file.read(length), size - 8 - length
    except ModelError:
        raise
    except OSError as error:
        raise fault(path, f"cannot be read ({error.strerror or error})") from None


def _check_entry(path: Path, name: str, entry: _Entry, data_bytes: int) -> None:
    if entry.dtype not in ITEM_BYTES:
        known = ", ".join(ITEM_BYTES)
        raise fault(path, f"tensor {name!r} has type {entry.dtype!r}; readable types: {known}")
    if len(entry.shape) > MAX_DIMENSIONS or any(size < 0 for size in entry.shape):
        raise fault(path, f"tensor {name!r} has shape {list(entry.shape)}, which is not legal")
    expected = ITEM_BYTES[entry.dtype]
    for size in entry.shape:
        expected *= size
    begin, end = entry.data_offsets
    if not 0 <= begin <= end <= data_bytes:
        raise fault(
            path,
            f"tensor {name!r} lies at bytes {begin} to {end} of {data_bytes}: the file was cut "
            f"short or its header is wrong",
        )
    if end - begin != expected:
        raise fault(
            path,
            f"tensor {name!r} of shape {list(entry.shape)} needs {expected} bytes and is given "
            f"{end - begin}",
        )


def _is_plain_name(name: str) -> bool:
    """A file of the folder itself: no separators, no parent, no drive."""
    return (
        name.endswith(".safetensors")
        and not name.startswith(".")
        and not any(char in name for char in "/\\:\0")
    )
