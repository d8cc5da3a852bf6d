"""A GGUF header is believed only as far as the file's own bytes bear it out."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.errors import ModelError
from engine.model.gguf_header import BLOCK_TYPES
from engine.model.gguf_reader import read_header

U8, U16, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 2, 4, 6, 7, 8, 9, 10
HUGE = 2**60
MIB = 2**20


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def array(kind: int, count: int, body: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + body


def refused(path: Path, *words: str) -> None:
    """Reading fails with the file and the words named, and allocates next to nothing."""
    tracemalloc.start()
    try:
        with pytest.raises(ModelError) as caught:
            read_header(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    assert peak < 4 * MIB


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    for number, block in BLOCK_TYPES.items():
        kind = gguf.GGMLQuantizationType(number)
        assert (block.name, block.elements, block.size) == (kind.name, *gguf.GGML_QUANT_SIZES[kind])


def test_header_agrees_with_the_gguf_package(tiny_gguf, tmp_path: Path) -> None:
    path = tiny_gguf(
        metadata={"x.flag": True, "x.words": ["a", "ü", "你好"], "x.numbers": [1, -2, 3]},
        kind=gguf.GGMLQuantizationType.Q4_1,
    ).write(tmp_path / "tiny.gguf")
    header = read_header(path)
    oracle = gguf.GGUFReader(path)
    assert header.flag("x.flag") is True
    assert header.texts("x.words") == ("a", "ü", "你好")
    assert header.numbers("x.numbers") == (1, -2, 3)
    for key, found in oracle.fields.items():
        if not key.startswith("GGUF."):
            value = found.contents()
            assert header.metadata[key] == (tuple(value) if isinstance(value, list) else value)
    assert set(header.tensors) == {tensor.name for tensor in oracle.tensors}
    for tensor in oracle.tensors:
        info = header.tensors[tensor.name]
        assert info.shape == tuple(int(size) for size in tensor.shape[::-1])
        assert (info.start, info.size) == (tensor.data_offset, tensor.n_bytes)
        assert info.type.name == tensor.tensor_type.name


def test_alignment_of_the_file_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "aligned.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(256)
    for name in ("a", "b"):
        writer.add_tensor(name, np.arange(3, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_header(path)
    for tensor in gguf.GGUFReader(path).tensors:
        assert header.tensors[tensor.name].start == tensor.data_offset
        assert tensor.data_offset % 256 == 0


def test_every_truncation_is_refused(tiny_gguf, tmp_path: Path) -> None:
    whole = tiny_gguf().write(tmp_path / "tiny.gguf").read_bytes()
    last = max(
        info.start + info.size for info in read_header(tmp_path / "tiny.gguf").tensors.values()
    )
    path = tmp_path / "cut.gguf"
    cuts = [*range(0, 400, 3), *range(400, last, 1_999), last - 1]
    for cut in cuts:
        path.write_bytes(whole[:cut])
        with pytest.raises(ModelError, match="cut.gguf"):
            read_header(path)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_flipped_header_bytes_never_end_in_anything_but_a_model_error(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    source = folder / "fuzz-source.gguf"
    if not source.exists():
        writer = gguf.GGUFWriter(source, "llama")
        writer.add_array("words", ["one", "two"])
        writer.add_array("numbers", [1, 2, 3])
        writer.add_bool("flag", True)
        writer.add_tensor("a", np.arange(8, dtype=np.float32))
        writer.add_tensor("b", np.ones((2, 4), dtype=np.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    raw = bytearray(source.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = folder / "fuzz.gguf"
    path.write_bytes(raw)
    try:
        header = read_header(path)
    except ModelError:
        return
    for info in header.tensors.values():
        assert 0 <= info.start <= info.start + info.size <= len(raw)


def test_file_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"PK\x03\x04" + b"\0" * 60)
    refused(path, "PK", "not a GGUF file")


def test_missing_empty_and_folder(tmp_path: Path) -> None:
    refused(tmp_path / "nothing.gguf", "cannot be read")
    refused(tmp_path, "")
    empty = tmp_path / "empty.gguf"
    empty.touch()
    refused(empty, "0 bytes")


@pytest.mark.parametrize("version", [0, 1, 4, 2**31])
def test_versions_that_are_not_read(raw_gguf: Callable[..., Path], version: int) -> None:
    refused(raw_gguf(version=version), "version")


def test_big_endian_file_is_called_so(raw_gguf: Callable[..., Path]) -> None:
    refused(raw_gguf(order=">"), "big-endian")


@pytest.mark.parametrize("count", [10**6, HUGE, 2**64 - 1])
def test_huge_counts(raw_gguf: Callable[..., Path], count: int) -> None:
    refused(raw_gguf(tensor_count=count), str(count), "tensors")
    refused(raw_gguf(metadata_count=count), str(count), "metadata")


def test_counts_below_the_limit_but_above_the_file(raw_gguf: Callable[..., Path]) -> None:
    refused(raw_gguf(tensor_count=60_000), "can hold")
    refused(raw_gguf(metadata_count=4_000), "can hold")


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (STRING, struct.pack("<Q", HUGE), "bytes"),
        (STRING, struct.pack("<Q", 3 * MIB), "ends at byte"),
        (STRING, text(b"\xff\xfe"), "UTF-8"),
        (ARRAY, array(U8, HUGE), str(HUGE)),
        (ARRAY, array(U64, 2**61 + 1), "claims"),  # 8 x this wraps round to 8 in 64 bits
        (ARRAY, array(STRING, HUGE), "claims"),
        (ARRAY, array(STRING, 1, struct.pack("<Q", HUGE)), "bytes"),
        (ARRAY, array(13, 1, b"\0" * 8), "0 to 12"),
        (ARRAY, array(BOOL, 2, b"\1\2"), "0 or 1"),
        (BOOL, b"\7", "0 or 1"),
        (13, b"\0" * 8, "0 to 12"),
        (2**32 - 1, b"\0" * 8, "0 to 12"),
    ],
)
def test_values_that_cannot_be(
    raw_gguf: Callable[..., Path], kind: int, value: bytes, words: str
) -> None:
    refused(raw_gguf(metadata=[("some.key", kind, value)]), "some.key", words)


def test_lists_nested_without_end(raw_gguf: Callable[..., Path]) -> None:
    nested = array(ARRAY, 1) * 100_000 + array(U8, 0)
    refused(raw_gguf(metadata=[("deep", ARRAY, nested)]), "deep", "nests")


def test_too_many_elements_in_all(raw_gguf: Callable[..., Path]) -> None:
    body = array(U8, 3 * MIB, b"\0" * (3 * MIB))
    path = raw_gguf(metadata=[("a", ARRAY, body), ("b", ARRAY, body)])
    with pytest.raises(ModelError, match="elements"):
        read_header(path)


def test_keys_and_names_have_limits(raw_gguf: Callable[..., Path]) -> None:
    refused(raw_gguf(metadata=[("k" * 2_000, U8, b"\0")]), "2000 bytes")
    refused(raw_gguf(tensors=[("t" * 65, [4], 0, 0)], data=b"\0" * 16), "65 bytes")


def test_names_that_stand_twice(raw_gguf: Callable[..., Path]) -> None:
    refused(raw_gguf(metadata=[("k", U8, b"\0"), ("k", U8, b"\1")]), "'k'", "twice")
    tensors = [("t", [4], 0, 0), ("t", [4], 0, 32)]
    refused(raw_gguf(tensors=tensors, data=b"\0" * 64), "'t'", "twice")


@pytest.mark.parametrize("alignment", [0, 1, 7, 24, 2**20])
def test_alignments_that_cannot_be(raw_gguf: Callable[..., Path], alignment: int) -> None:
    value = struct.pack("<I", alignment)
    refused(raw_gguf(metadata=[("general.alignment", U32, value)]), "alignment", str(alignment))


@pytest.mark.parametrize(
    ("dimensions", "kind", "offset", "words"),
    [
        ([4], 0, 64, "would end at byte"),
        ([4], 0, 2**63, "would end at byte"),
        ([4], 0, 8, "multiple of 32"),
        ([2**32, 2**32], 0, 0, "cannot hold"),  # the product wraps round to 0 in 64 bits
        ([2**63, 2], 0, 0, "cannot hold"),
        ([0, 4], 0, 0, "cannot hold"),
        ([], 0, 0, "0 dimensions"),
        ([1] * 5, 0, 0, "5 dimensions"),
        ([1] * 100, 0, 0, "100 dimensions"),
        ([33], 3, 0, "packs 32"),
        ([4], 4, 0, "type number 4"),
        ([4], 2**31, 0, "type number"),
    ],
)
def test_tensors_that_cannot_be(
    raw_gguf: Callable[..., Path], dimensions: list[int], kind: int, offset: int, words: str
) -> None:
    path = raw_gguf(tensors=[("bad.tensor", dimensions, kind, offset)], data=b"\0" * 64)
    refused(path, "bad.tensor", words)


def test_overlapping_tensors_are_both_named(raw_gguf: Callable[..., Path]) -> None:
    tensors = [("first", [16], 0, 0), ("apart", [4], 0, 96), ("second", [16], 0, 32)]
    refused(raw_gguf(tensors=tensors, data=b"\0" * 128), "first", "second", "overlap")


def test_hostile_names_are_cleaned_in_the_message(raw_gguf: Callable[..., Path]) -> None:
    path = raw_gguf(tensors=[("\x1b[2Jevil\nname", [4], 99, 0)], data=b"\0" * 64)
    with pytest.raises(ModelError) as caught:
        read_header(path)
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_getters_say_what_they_wanted(raw_gguf: Callable[..., Path]) -> None:
    header = read_header(
        raw_gguf(metadata=[("n", F32, struct.pack("<f", 1.5)), ("s", STRING, text("x"))])
    )
    assert header.number("n") == 1.5
    with pytest.raises(ModelError, match="'n' should be a whole number"):
        header.integer("n")
    with pytest.raises(ModelError, match="'s' should be a number, not text"):
        header.number("s")
    with pytest.raises(ModelError, match="'gone' is missing"):
        header.text("gone")
    with pytest.raises(ModelError, match="'s' should be a list"):
        header.texts("s")
