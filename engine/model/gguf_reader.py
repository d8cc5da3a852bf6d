"""The header of a GGUF file, read without trusting it.

Every length, count and offset is held against the bytes that the file really has before anything
is allocated for it, so a hostile header costs an error and not the machine's memory. Nothing here
touches tensor data, and nothing but the standard library is needed.

Layout (GGUF specification, versions 2 and 3, little-endian):
    magic "GGUF" | version u32 | tensor count u64 | metadata count u64
    metadata: key string, type u32, value
    tensors: name string, dimension count u32, dimensions u64..., type u32, offset u64
    padding to the alignment | tensor data, each tensor at its offset from here
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Mapping
from pathlib import Path

from engine.model.errors import ModelError, fault
from engine.model.gguf_header import BLOCK_TYPES, GGUFHeader, TensorInfo, Value

MAGIC = b"GGUF"
VERSIONS = (2, 3)

MAX_METADATA = 4_096
MAX_TENSORS = 65_536
MAX_KEY_BYTES = 1_024
MAX_NAME_BYTES = 64  # the format's own limit (GGML_MAX_NAME)
MAX_STRING_BYTES = 4 * 2**20
MAX_ARRAY_ELEMENTS = 4 * 2**20  # over the whole file; the largest vocabularies hold under 300,000
MAX_ARRAY_DEPTH = 2
MAX_DIMENSIONS = 4
MAX_ALIGNMENT = 65_536

_SCALARS: Mapping[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<B"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def read_header(path: Path) -> GGUFHeader:
    """Read and check everything before the tensor data of the GGUF file at `path`.

    Raises:
        ModelError: not a GGUF file, an unreadable version, or a header that cannot be true of a
            file of this size; names the file and the first fault found.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise fault(path, "is not a regular file")
            if status.st_size < 24:
                raise fault(
                    path, f"is {status.st_size} bytes long; a GGUF header alone takes at least 24"
                )
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Cursor(path, data).header()
    except ModelError:
        raise
    except OSError as error:
        raise fault(path, f"cannot be read ({error.strerror or error})") from None


class _Cursor:
    """A position in the file that never moves past its end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.size = len(data)
        self.position = 0
        self.elements = 0

    def header(self) -> GGUFHeader:
        version, tensor_count, metadata_count = self._preamble()
        metadata: dict[str, Value] = {}
        for index in range(metadata_count):
            key = self.string(MAX_KEY_BYTES, f"the key of metadata entry {index}")
            if key in metadata:
                raise self.fault(f"metadata {key!r} stands twice")
            metadata[key] = self.value(f"metadata {key!r}")
        raw = [self._tensor_entry(index) for index in range(tensor_count)]
        alignment = metadata.get("general.alignment", 32)
        if (
            not isinstance(alignment, int)
            or not 8 <= alignment <= MAX_ALIGNMENT
            or alignment & (alignment - 1)
        ):
            raise self.fault(
                f"general.alignment is {alignment!r}; it must be a power of two from 8 to "
                f"{MAX_ALIGNMENT}"
            )
        start = -(-self.position // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        for name, shape, kind, offset in raw:
            if name in tensors:
                raise self.fault(f"tensor {name!r} stands twice")
            tensors[name] = self._place(name, shape, kind, offset, start, alignment)
        self._check_disjoint(tensors)
        return GGUFHeader(self.path, version, metadata, tensors)

    def _preamble(self) -> tuple[int, int, int]:
        magic = self.take(4, "the magic")
        if magic != MAGIC:
            raise self.fault(f"starts with {magic!r} and not with {MAGIC!r}: not a GGUF file")
        version = self.u32("the version")
        if version not in VERSIONS:
            big_endian = int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS
            why = "a big-endian file" if big_endian else f"GGUF version {version}"
            raise self.fault(f"is {why}; versions 2 and 3 in little-endian order are readable")
        tensors = self.u64("the tensor count")
        metadata = self.u64("the metadata count")
        self._check_count(tensors, MAX_TENSORS, 24, "tensors")
        self._check_count(metadata, MAX_METADATA, 13, "metadata entries")
        return version, tensors, metadata

    def _check_count(self, count: int, most: int, least_bytes: int, what: str) -> None:
        """`least_bytes` is the smallest one of them can be."""
        if count > most:
            raise self.fault(f"claims {count} {what}; at most {most} are read")
        if count * least_bytes > self.size - self.position:
            raise self.fault(f"claims {count} {what}, more than its {self.size} bytes can hold")

    def _tensor_entry(self, index: int) -> tuple[str, tuple[int, ...], int, int]:
        name = self.string(MAX_NAME_BYTES, f"the name of tensor {index}")
        rank = self.u32(f"the dimension count of tensor {name!r}")
        if not 1 <= rank <= MAX_DIMENSIONS:
            raise self.fault(
                f"tensor {name!r} has {rank} dimensions; 1 to {MAX_DIMENSIONS} are legal"
            )
        dimensions = tuple(self.u64(f"a dimension of tensor {name!r}") for _ in range(rank))
        kind = self.u32(f"the type of tensor {name!r}")
        offset = self.u64(f"the offset of tensor {name!r}")
        return name, dimensions[::-1], kind, offset

    def _place(
        self, name: str, shape: tuple[int, ...], kind: int, offset: int, start: int, alignment: int
    ) -> TensorInfo:
        block = BLOCK_TYPES.get(kind)
        if block is None:
            names = ", ".join(entry.name for entry in BLOCK_TYPES.values())
            raise self.fault(f"tensor {name!r} has type number {kind}; readable types: {names}")
        count = 1
        for dimension in shape:
            count *= dimension
            if dimension < 1 or count > self.size * 256:  # no type packs more than this
                raise self.fault(
                    f"tensor {name!r} has shape {list(shape)}, which {self.size} bytes cannot hold"
                )
        if shape[-1] % block.elements:
            raise self.fault(
                f"tensor {name!r} has rows of {shape[-1]} weights, and {block.name} packs "
                f"{block.elements} at a time"
            )
        size = count // block.elements * block.size
        if offset % alignment:
            raise self.fault(
                f"tensor {name!r} lies at offset {offset}, not a multiple of {alignment}"
            )
        if start + offset + size > self.size:
            raise self.fault(
                f"tensor {name!r} would end at byte {start + offset + size} and the file has "
                f"{self.size}: it was cut short or its header is wrong"
            )
        return TensorInfo(name, shape, block, start + offset, size)

    def _check_disjoint(self, tensors: Mapping[str, TensorInfo]) -> None:
        ordered = sorted(tensors.values(), key=lambda info: info.start)
        for before, after in zip(ordered, ordered[1:], strict=False):
            if after.start < before.start + before.size:
                raise self.fault(f"tensors {before.name!r} and {after.name!r} overlap")

    def value(self, what: str) -> Value:
        return self._value(self.u32(f"the type of {what}"), what, 0)

    def _value(self, kind: int, what: str, depth: int) -> Value:
        if kind == _STRING:
            return self.string(MAX_STRING_BYTES, what)
        if kind == _ARRAY:
            return self._array(what, depth + 1)
        form = _SCALARS.get(kind)
        if form is None:
            raise self.fault(f"{what} has type number {kind}; 0 to 12 are legal")
        (value,) = form.unpack(self.take(form.size, what))
        if kind == _BOOL:
            return self._bool(value, what)
        number: int | float = value
        return number

    def _array(self, what: str, depth: int) -> tuple[Value, ...]:
        if depth > MAX_ARRAY_DEPTH:
            raise self.fault(f"{what} nests lists more than {MAX_ARRAY_DEPTH} deep")
        kind = self.u32(f"the element type of {what}")
        count = self.u64(f"the length of {what}")
        form = _SCALARS.get(kind)
        if form is None and kind not in (_STRING, _ARRAY):
            raise self.fault(f"{what} has elements of type number {kind}; 0 to 12 are legal")
        least = form.size if form else 8 if kind == _STRING else 12
        if count * least > self.size - self.position:
            raise self.fault(f"{what} claims {count} elements, more than the file can hold")
        self.elements += count
        if self.elements > MAX_ARRAY_ELEMENTS:
            raise self.fault(f"lists hold over {MAX_ARRAY_ELEMENTS} elements, counted up to {what}")
        if form is None:
            return tuple(self._value(kind, what, depth) for _ in range(count))
        packed = struct.Struct(f"<{count}{form.format[-1]}")
        values = packed.unpack(self.take(packed.size, what))
        return tuple(self._bool(v, what) for v in values) if kind == _BOOL else values

    def _bool(self, value: int, what: str) -> bool:
        if value not in (0, 1):
            raise self.fault(f"{what} should be 0 or 1 and is {value}")
        return value == 1

    def string(self, most: int, what: str) -> str:
        length = self.u64(f"the length of {what}")
        if length > most:
            raise self.fault(f"{what} claims {length} bytes; at most {most} are read")
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError:
            raise self.fault(f"{what} is not UTF-8 text") from None

    def u32(self, what: str) -> int:
        (value,) = _U32.unpack(self.take(4, what))
        return int(value)

    def u64(self, what: str) -> int:
        (value,) = _U64.unpack(self.take(8, what))
        return int(value)

    def take(self, count: int, what: str) -> bytes:
        end = self.position + count
        if end > self.size:
            raise self.fault(f"ends at byte {self.size}, inside {what}")
        chunk = self.data[self.position : end]
        self.position = end
        return chunk

    def fault(self, text: str) -> ModelError:
        return fault(self.path, text)
