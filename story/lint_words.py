"""Faults a text has by itself: width, glyphs, braces, leftovers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from story.facts import FACTS
from story.filling import bad_braces, fill, placeholders
from story.schema import Language
from story.yaml_reader import Step

Fault = tuple[str, str]
"""(code, message)"""

_CJK = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_LATIN_WORD = re.compile(r"[A-Za-z]{3,}")
_LEFTOVER = re.compile(
    r"(?<![A-Za-z])(TODO|FIXME|XXX|TBD|lorem ipsum)(?![A-Za-z])|待译|待补", re.IGNORECASE
)
_EMOJI = re.compile("[\ufe0e\ufe0f\u200d\U0001f000-\U0001faff\u2600-\u27bf]")
_OWN_NAMES = frozenset({"中文", "延迟之壁"})
"""Chinese that stands in English text by right: the language's own name, and the game's."""
_FEW_WORDS = 3
_NUMBER_CELLS, _TEXT_CELLS = 6, 16
WIDEST = {"line": 216, "reply": 68, "answer": 216, "hint": 216, "formula": 240, "name": 24,
          "place": 64, "question": 76, "choice": 24, "closed": 216}  # fmt: skip
"""Display cells, facts filled in: a dialogue box at 80 columns holds three rows of 72."""


def cells(text: str) -> int:
    """Columns a terminal gives `text`: wide and fullwidth characters take two, marks none."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def shown_cells(text: str) -> int:
    """`cells` with each placeholder as wide as its fact is likely to be."""
    width = {
        name: "x"
        * (_NUMBER_CELLS if name in FACTS and FACTS[name].kind == "number" else _TEXT_CELLS)
        for name in placeholders(text)
    }
    return cells(fill(re.sub(r"(\{[a-z_0-9]+):[^{}]*\}", r"\1}", text), width))


def plain_faults(text: str, language: Language) -> Iterator[Fault]:
    """What is wrong with any text of the game, in scenes and in the interface alike."""
    if not text.strip():
        yield "empty", "the text is empty"
    for wrong in bad_braces(text):
        yield "braces", f"{wrong!r} is no placeholder; write {{name}}, or {{{{ for a brace"
    if _LEFTOVER.search(text):
        yield "leftover", f"a note to oneself is left in: {_short(text)}"
    found = _EMOJI.search(text)
    if found:
        yield "emoji", f"U+{ord(found.group()):04X} is drawn differently from terminal to terminal"
    if language == "en" and _CJK.search(text) and "".join(text.split()) not in _OWN_NAMES:
        yield "untranslated", f"Chinese in the English text: {_short(text)}"
    words = _LATIN_WORD.findall(_without_names(text))
    if language == "zh" and not _CJK.search(text) and len(words) > _FEW_WORDS:
        yield "untranslated", f"no Chinese in the Chinese text: {_short(text)}"


def scene_faults(text: str, place: str) -> Iterator[Fault]:
    """What is wrong with a text of a stage file that must fit its place on the screen."""
    width, limit = shown_cells(text), WIDEST[place]
    if width > limit:
        yield "too-wide", f"{width} cells where {limit} fit: {_short(text)}"
    for char in sorted(set(text)):
        if unicodedata.east_asian_width(char) == "A":
            name = unicodedata.name(char, "?").lower()
            yield "ambiguous-width", f"{char!r} ({name}) is one cell or two by terminal"


def texts(
    value: object, path: tuple[Step, ...] = ()
) -> Iterator[tuple[tuple[Step, ...], str, str]]:
    """(path, place, text) of every text a player reads in a stage file's plain value."""
    if isinstance(value, str):
        place = _place(path)
        if place is not None:
            yield path, place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from texts(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from texts(inner, (*path, index))


def _place(path: tuple[Step, ...]) -> str | None:
    first, last = path[0], path[-1]
    if first == "scenes":
        if last == "text":
            return "reply" if "choices" in path else "line"
        return "answer" if last == "answer" else None
    if first in ("hints", "choices"):
        return "hint" if first == "hints" else "choice"
    if first in ("formula", "published", "correction"):
        return "formula"
    return str(first) if first in ("name", "place", "question", "closed") else None


def _without_names(text: str) -> str:
    return re.sub(r"\{[^{}]*\}|`[^`]*`", " ", text)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 40 else flat[:39] + "~"
