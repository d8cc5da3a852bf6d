"""Turning a document into values: each fault stands at the line that was written."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from story.schema import Stage, StageText
from story.yaml_reader import StoryError, read_document
from story.yaml_values import convert

GOOD_TEXT = """\
stage: some
name: Some
place: here
choices:
  a: A
scenes:
  arrival:
    - id: some.arrival.one
      who: elder
      text: One.
  forge:
    - id: some.forge.one
      who: wall
      text: Two.
      when:
        - {fact: debt, op: ">=", value: 3}
    - id: some.forge.two
      who: wall
      text: Three.
"""


def refused(folder: Path, text: str, kind: type) -> StoryError:
    file = folder / "some.yaml"
    file.write_text(text, "utf-8")
    with pytest.raises(StoryError) as caught:
        convert(read_document(file), kind)
    return caught.value


def changed(old: str, new: str) -> str:
    assert GOOD_TEXT.count(old) == 1
    return GOOD_TEXT.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "line", "fault"),
    [
        ("name: Some", "naem: Some", 2, "no field is named 'naem'; nearest: name"),
        ("  arrival:", "  arival:", 7, "'arival' is not one of"),
        ("who: elder", "who: eldar", 9, "nearest: elder"),
        ("text: Three.", "txet: Three.", 19, "'txet'; nearest: text"),
        ('op: ">="', 'op: "=>"', 16, "'=>' is not one of"),
        ("{fact: debt,", "{fcat: debt,", 16, "'fcat'; nearest: fact"),
        ("value: 3", "value: [3]", 16, "got `array`"),
        ("  a: A", "  a: 7", 5, "expected `str`, got `int`; put it in quotes"),
        ("text: One.", "text: true", 10, "got `bool`; put it in quotes"),
        ("place: here\n", "", 1, "missing required field `place`"),
    ],
)
def test_a_fault_names_its_line_and_the_nearest_word(
    tmp_path: Path, old: str, new: str, line: int, fault: str
) -> None:
    error = refused(tmp_path, changed(old, new), StageText)
    assert fault in error.fault
    assert error.line == line


def test_a_second_key_is_not_blamed_for_the_first(tmp_path: Path) -> None:
    error = refused(tmp_path, "a: x\nb: y\nc: 3\nd: z\n", dict[str, str])
    assert (error.line, error.column) == (3, 4)


def test_a_fault_inside_an_optional_value_is_placed(tmp_path: Path) -> None:
    text = "id: some\norder: 1\nopen: true\nguess:\n  kind: dail\n  metric: kl\n"
    error = refused(tmp_path, text, Stage)
    assert (error.line, error.column) == (5, 9)
    assert error.fault.endswith("nearest: dial")
    error = refused(tmp_path, text.replace("kind: dail", "kynd: dial"), Stage)
    assert error.line == 5 and error.fault.endswith("nearest: kind")


def test_numbers_are_not_made_of_words(tmp_path: Path) -> None:
    assert "got `str`" in refused(tmp_path, "id: a\norder: '1'\nopen: true\n", Stage).fault
    assert "got `str`" in refused(tmp_path, "id: a\norder: 1\nopen: 'true'\n", Stage).fault


@pytest.mark.parametrize("text", ["[1, 2]", "word", "3", "~"])
def test_a_file_of_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    assert refused(tmp_path, text, StageText).fault.startswith("expected `object`")


def test_what_fits_converts_as_msgspec_does(tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(GOOD_TEXT, "utf-8")
    document = read_document(file)
    assert convert(document, StageText) == msgspec.convert(document.value, StageText)
