"""Reading YAML: honest files read as PyYAML reads them, hostile ones are refused with a place."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from story.loader import STORY_ROOT
from story.yaml_reader import Limits, StoryError, read_document


def written(folder: Path, text: str | bytes, name: str = "some.yaml") -> Path:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def refused(folder: Path, text: str | bytes) -> StoryError:
    with pytest.raises(StoryError) as caught:
        read_document(written(folder, text))
    return caught.value


@pytest.mark.parametrize("file", sorted(STORY_ROOT.rglob("*.yaml")), ids=lambda file: file.name)
def test_every_shipped_file_reads_as_pyyaml_reads_it(file: Path) -> None:
    assert read_document(file).value == yaml.safe_load(file.read_text("utf-8"))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text("ab 双{}:#'\"-", max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_what_pyyaml_writes_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    file = written(tmp_path_factory.mktemp("round"), yaml.safe_dump(value, allow_unicode=True))
    assert read_document(file).value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2026-01-02", "2026-01-02"),
        ("0x10", "0x10"),
        ("007", 7),
        ("true", True),
        ("~", None),
        ("1.5", 1.5),
        ("-2e3", -2000.0),
        ("'8'", "8"),
        ('"true"', "true"),
    ],
)
def test_scalars_follow_the_core_schema(tmp_path: Path, text: str, value: object) -> None:
    read = read_document(written(tmp_path, f"key: {text}\n")).value["key"]
    assert read == value and type(read) is type(value)


def test_every_value_keeps_its_place(tmp_path: Path) -> None:
    document = read_document(written(tmp_path, "a: 1\nb:\n  - x\n  - {c: 双, d: 2}\n"))
    assert document.places[("b", 1, "d")] == (4, 15)
    assert document.keys[("b",)] == (2, 1)
    assert document.place(("b", 1, "absent", "deeper")) == document.places[("b", 1)]


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    file = written(tmp_path, "a: 1\r\nb: 二\r\n".encode("utf-8-sig"))
    assert read_document(file).value == {"a": 1, "b": "二"}


BOMB = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(20)
)
HOSTILE = [
    pytest.param(BOMB, 1, "anchors", id="alias bomb"),
    pytest.param("a: 1\nb: *a\n", 2, "aliases", id="alias"),
    pytest.param("a: " + "[" * 500 + "]" * 500, 1, "nested deeper", id="500 brackets"),
    pytest.param("a: " + "{b: " * 500 + "1" + "}" * 500, 1, "nested deeper", id="500 braces"),
    pytest.param("a: 1\nb: 2\na: 3\n", 3, "given twice; first in line 1", id="duplicate"),
    pytest.param("x:\n  a: 1\n  a: 1\n", 3, "given twice", id="inner duplicate"),
    pytest.param("a: !!python/object/apply:os.system [ls]\n", 1, "tags", id="python tag"),
    pytest.param("a: !!binary aGk=\n", 1, "tags", id="standard tag"),
    pytest.param("a: !mine x\n", 1, "tags", id="own tag"),
    pytest.param("a: 1\n---\nb: 2\n", 2, "second document", id="two documents"),
    pytest.param("? [a, b]\n: 1\n", 1, "plain word", id="list as key"),
    pytest.param('a: 1\nb: "\\e[31mred"\n', 2, "control", id="escaped escape"),
    pytest.param('a: "x\\u202Ey"\n', 1, "control or direction", id="direction mark"),
    pytest.param('"k\\ae": 1\n', 1, "control", id="bell in a key"),
    pytest.param("a: 1\nb: x\x1b[31m\n", 2, "control character: U+001B", id="raw escape"),
    pytest.param(b"a: 1\nbb: \xff\xfe\n", 2, "UTF-8", id="bad UTF-8"),
    pytest.param("a: [1, 2\nb: 3\n", 2, "not YAML", id="unclosed"),
    pytest.param("a:\tb: c\n", 1, "not YAML", id="stray mapping"),
    pytest.param("a: " + "9" * 5000 + "\n", 1, "digits", id="endless number"),
    pytest.param("", 1, "empty", id="empty"),
    pytest.param("# only a comment\n", 1, "empty", id="comment"),
]


@pytest.mark.parametrize(("text", "line", "fault"), HOSTILE)
def test_a_hostile_file_is_refused_with_its_place(
    tmp_path: Path, text: str | bytes, line: int, fault: str
) -> None:
    error = refused(tmp_path, text)
    assert fault in error.fault
    assert (error.line, error.file) == (line, tmp_path / "some.yaml")
    assert error.column >= 1
    assert str(error).startswith(f"{error.file}:{line}:{error.column}: ")


@pytest.mark.parametrize(("text", "line", "fault"), HOSTILE)
def test_the_same_holds_where_libyaml_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | bytes, line: int, fault: str
) -> None:
    monkeypatch.setattr("story.yaml_reader._LOADER", yaml.SafeLoader)
    error = refused(tmp_path, text)
    assert fault in error.fault and error.line == line


def test_a_column_counts_characters_from_one(tmp_path: Path) -> None:
    assert refused(tmp_path, "a: 1\nb: {c: *x}\n").column == 8
    assert refused(tmp_path, "a: 1\n双: x\x1b\n").column == 5


def test_a_huge_file_is_refused_without_reading_it_all(tmp_path: Path) -> None:
    file = tmp_path / "huge.yaml"
    with file.open("wb") as stream:
        stream.truncate(3 * 1024**3)  # sparse: costs nothing unless it is read
    with pytest.raises(StoryError, match="larger than 512 KiB"):
        read_document(file)


def test_more_values_than_allowed_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "".join(f"k{n}: 1\n" for n in range(60)))
    assert len(read_document(file, Limits(values=121)).value) == 60
    with pytest.raises(StoryError, match="more than 100 values"):
        read_document(file, Limits(values=100))


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoryError, match=r"absent\.yaml: cannot be read: No such file"):
        read_document(tmp_path / "absent.yaml")
    with pytest.raises(StoryError, match="cannot be read"):
        read_document(tmp_path)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    file = written(tmp_path_factory.mktemp("any"), data)
    try:
        read_document(file)
    except StoryError as error:
        assert error.fault
