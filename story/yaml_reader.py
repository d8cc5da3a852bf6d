"""Strict YAML: every value keeps the place it was written, and every fault names it.

The parser's events are read one by one (libyaml's where PyYAML was built with it), so a hostile
file meets the limits before it costs memory or stack. Scalars follow YAML 1.2's core schema:
`no` and `on` are words, `2026-01-02` is a word, `12:30` is a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from engine.clean import clean

Step = str | int
"""One step of a path into a document: a mapping's key or a sequence's index."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_WORDS: Mapping[str, bool | None] = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
}
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_DIGITS = 64


class StoryError(ValueError):
    """A story file that cannot be used: the file, the place (from 1; 0 is unknown), the fault."""

    def __init__(self, file: Path, line: int, column: int, fault: str) -> None:
        self.file = file
        self.line = line
        self.column = column
        self.fault = fault
        place = f":{line}:{column}" if line else ""
        super().__init__(f"{file}{place}: {fault}")


@dataclass(frozen=True)
class Limits:
    """Far above any honest story file: bytes in all, levels of nesting, values in all."""

    size: int = 512 * 1024
    depth: int = 16
    values: int = 20_000


LIMITS = Limits()


@dataclass(frozen=True)
class Document:
    """Plain values, and (line, column) from 1 of each path. A key's own place is in `keys`."""

    file: Path
    value: Any
    places: Mapping[tuple[Step, ...], tuple[int, int]]
    keys: Mapping[tuple[Step, ...], tuple[int, int]]

    def error(self, path: tuple[Step, ...], fault: str, at_key: bool = False) -> StoryError:
        """The error at `path`, or at the nearest written thing around it."""
        line, column = self.place(path, at_key)
        return StoryError(self.file, line, column, fault)

    def place(self, path: tuple[Step, ...], at_key: bool = False) -> tuple[int, int]:
        for end in range(len(path), -1, -1):
            found = (self.keys.get(path[:end]) if at_key else None) or self.places.get(path[:end])
            if found:
                return found
        return (1, 1)


@dataclass
class _Open:
    """A mapping or sequence still being read; `key` waits for its value."""

    path: tuple[Step, ...]
    value: dict[str, Any] | list[Any]
    key: str | None = None


@dataclass
class _Builder:
    file: Path
    limits: Limits
    places: dict[tuple[Step, ...], tuple[int, int]] = field(default_factory=dict)
    keys: dict[tuple[Step, ...], tuple[int, int]] = field(default_factory=dict)
    stack: list[_Open] = field(default_factory=list)
    root: Any = None
    count: int = 0
    documents: int = 0

    def take(self, event: Any) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._start(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self.stack.pop()
        elif isinstance(event, yaml.AliasEvent):
            raise self._fault(event, f"aliases are not used here: *{event.anchor}")
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise self._fault(event, "a second document; a file holds one")

    def _fault(self, event: Any, text: str) -> StoryError:
        mark = event.start_mark
        return StoryError(self.file, mark.line + 1, mark.column + 1, text)

    def _check(self, event: Any) -> None:
        if event.tag is not None and not (isinstance(event, yaml.ScalarEvent) and event.tag == "!"):
            raise self._fault(event, f"tags are not used here: {event.tag}")
        if event.anchor is not None:
            raise self._fault(event, f"anchors are not used here: &{event.anchor}")
        self.count += 1
        if self.count > self.limits.values:
            raise self._fault(event, f"more than {self.limits.values} values in one file")

    def _scalar(self, event: Any) -> None:
        self._check(event)
        text: str = event.value
        if clean(text) != text:
            raise self._fault(event, "control or direction characters in a text; leave them out")
        parent = self.stack[-1] if self.stack else None
        if parent is not None and isinstance(parent.value, dict) and parent.key is None:
            self._key(event, parent, text)
            return
        self._put(event, self._plain(event, text) if event.implicit[0] else text)

    def _key(self, event: Any, parent: _Open, text: str) -> None:
        assert isinstance(parent.value, dict)
        path = (*parent.path, text)
        if text in parent.value:
            line = self.keys[path][0]
            raise self._fault(event, f"{text!r} is given twice; first in line {line}")
        parent.key = text
        self.keys[path] = (event.start_mark.line + 1, event.start_mark.column + 1)

    def _plain(self, event: Any, text: str) -> Any:
        if text in _WORDS:
            return _WORDS[text]
        if len(text) <= _DIGITS:
            if _INT.match(text):
                return int(text)
            if _FLOAT.match(text):
                return float(text)
        elif _INT.match(text):
            raise self._fault(event, f"a number of more than {_DIGITS} digits")
        return text

    def _start(self, event: Any) -> None:
        self._check(event)
        if len(self.stack) >= self.limits.depth:
            raise self._fault(event, f"nested deeper than {self.limits.depth} levels")
        if self.stack and isinstance(self.stack[-1].value, dict) and self.stack[-1].key is None:
            raise self._fault(event, "a mapping's key must be a plain word")
        value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self.stack.append(_Open(self._put(event, value), value))

    def _put(self, event: Any, value: Any) -> tuple[Step, ...]:
        """Place `value` in what is open; returns its path."""
        path: tuple[Step, ...] = ()
        if not self.stack:
            self.root = value
        else:
            parent = self.stack[-1]
            if isinstance(parent.value, list):
                path = (*parent.path, len(parent.value))
                parent.value.append(value)
            else:
                assert parent.key is not None
                path = (*parent.path, parent.key)
                parent.value[parent.key] = value
                parent.key = None
        self.places[path] = (event.start_mark.line + 1, event.start_mark.column + 1)
        return path


def read_document(file: Path, limits: Limits = LIMITS) -> Document:
    """The file's plain values with the place of each.

    Raises:
        StoryError: unreadable, too large, not UTF-8, not YAML, or beyond the limits; aliases,
            anchors, tags, duplicate keys, keys that are not words, control characters.
    """
    builder = _Builder(file, limits)
    for event in _events(file, _read_text(file, limits)):
        builder.take(event)
    if builder.documents == 0:
        raise StoryError(file, 1, 1, "the file is empty")
    return Document(file, builder.root, builder.places, builder.keys)


def _read_text(file: Path, limits: Limits) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(limits.size + 1)
    except OSError as error:
        raise StoryError(file, 0, 0, f"cannot be read: {error.strerror or error}") from None
    if len(data) > limits.size:
        raise StoryError(file, 0, 0, f"larger than {limits.size // 1024} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        raise StoryError(file, line, column, "not UTF-8 text") from None


def _events(file: Path, text: str) -> Iterator[Any]:
    control = _CONTROL.search(text)
    if control:
        before = text[: control.start()]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise StoryError(file, line, column, f"a control character: U+{ord(control.group()):04X}")
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise StoryError(file, line, column, f"not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise StoryError(file, 0, 0, f"not YAML: {error}") from None
