"""The story's linter: what a player would stumble over, found before anyone plays.

`python -m story.lint` prints each finding as `file:line: code: message` and exits 1 if there are
any. Codes: schema, missing-text, orphan, missing-line, missing-key, duplicate, differs, order,
placeholder, braces, dead-end, no-scar, unreachable, gap, unknown-fact, too-early, never-known,
condition, line-id, choices, hints, too-wide, ambiguous-width, emoji, untranslated, leftover, empty.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from story.lint_pairs import interface_pair_faults, pair_faults
from story.lint_scenes import Room, room_faults
from story.lint_words import plain_faults
from story.loader import STORY_ROOT, text_file
from story.schema import LANGUAGES, Language, Stage, StageText
from story.stage_check import check_order, check_stage
from story.yaml_reader import Document, StoryError, read_document
from story.yaml_values import convert


@dataclass(frozen=True, order=True)
class Finding:
    """One fault: `line` counts from 1; 0 where the fault is the whole file."""

    file: Path
    line: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.code}: {self.message}"


def lint_story(root: Path = STORY_ROOT) -> tuple[Finding, ...]:
    """Every finding in the story under `root`, by file and line. A clean story has none."""
    stages, findings = _stages(root)
    rooms: dict[str, list[Room]] = {}
    for stage in stages:
        for language in LANGUAGES:
            try:
                room = _room(stage, language, root)
            except StoryError as error:
                code = "schema" if error.file.exists() else "missing-text"
                findings.append(_of(error, code))
            else:
                rooms.setdefault(stage.id, []).append(room)
    for pair in rooms.values():
        for room in pair:
            others = [other for other in pair if other.language != room.language]
            faults = [fault for other in others for fault in pair_faults(room, other)]
            for path, code, message in (*room_faults(room), *faults):
                findings.append(_at(room.document, path, code, message))
    findings += _repeated_ids(rooms)
    findings += _orphans(stages, root)
    findings += _interface(root)
    return tuple(sorted(set(findings)))


def _stages(root: Path) -> tuple[list[Stage], list[Finding]]:
    good: list[tuple[Document, Stage]] = []
    findings: list[Finding] = []
    for file in sorted((root / "stages").glob("*.yaml")):
        try:
            document = read_document(file)
            stage = convert(document, Stage)
            check_stage(document, stage)
            good.append((document, stage))
        except StoryError as error:
            findings.append(_of(error, "schema"))
    try:
        check_order(good)
    except StoryError as error:
        findings.append(_of(error, "schema"))
    return [stage for _, stage in good], findings


def _room(stage: Stage, language: Language, root: Path) -> Room:
    document = read_document(text_file(stage.id, language, root))
    text = convert(document, StageText)
    if text.stage != stage.id:
        raise document.error(("stage",), f"the file is named {stage.id!r}, not {text.stage!r}")
    return Room(stage, text, document, language)


def _repeated_ids(rooms: dict[str, list[Room]]) -> Iterator[Finding]:
    """A line's id is what a profile remembers as read, so it names one line in the whole story."""
    for language in LANGUAGES:
        seen: set[str] = set()
        for room in (room for pair in rooms.values() for room in pair if room.language == language):
            for scene, lines in room.text.scenes.items():
                for index, line in enumerate(lines):
                    if line.id in seen:
                        path = ("scenes", scene, index, "id")
                        yield _at(room.document, path, "duplicate", f"{line.id!r} is used twice")
                    seen.add(line.id)


def _orphans(stages: list[Stage], root: Path) -> Iterator[Finding]:
    known = {stage.id for stage in stages} | {
        file.stem for file in (root / "stages").glob("*.yaml")
    }
    for language in LANGUAGES:
        for file in sorted((root / language / "stages").glob("*.yaml")):
            if file.stem not in known:
                yield Finding(file, 0, "orphan", f"no stage is named {file.stem!r}")


def _interface(root: Path) -> Iterator[Finding]:
    words: dict[Language, dict[str, str]] = {language: {} for language in LANGUAGES}
    homes: dict[tuple[Language, str], Document] = {}
    whole = True
    for language in LANGUAGES:
        for file in sorted((root / language / "interface").glob("*.yaml")):
            try:
                document = read_document(file)
                found = convert(document, dict[str, str])
            except StoryError as error:
                whole = False
                yield _of(error, "schema")
                continue
            for key, text in found.items():
                if key in words[language]:
                    first = homes[language, key].file.name
                    message = f"{key!r} is also given in {first}"
                    yield _at(document, (key,), "duplicate", message)
                    continue
                words[language][key] = text
                homes[language, key] = document
                for code, message in plain_faults(text, language):
                    yield _at(document, (key,), code, f"{key!r}: {message}")
    if not whole:
        return  # a file that cannot be read would make every key of it look missing
    for language in LANGUAGES:
        for other in (one for one in LANGUAGES if one != language):
            for key, code, message in interface_pair_faults(words[language], words[other]):
                home = homes.get((language, key), homes[other, key])
                yield _at(home, (key,), code, f"{message} ({language})")


def _at(document: Document, path: tuple[str | int, ...], code: str, message: str) -> Finding:
    return Finding(document.file, document.place(path)[0], code, message)


def _of(error: StoryError, code: str) -> Finding:
    return Finding(error.file, error.line, code, error.fault)


def main() -> int:
    """Print the findings. Exit status: 0 clean, 1 not."""
    findings = lint_story()
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
