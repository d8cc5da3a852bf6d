"""Stage files, scenes and interface text, read once and checked against what the engine knows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from story.filling import fill
from story.schema import LANGUAGES, Language, Stage, StageText
from story.yaml_reader import StoryError, read_document
from story.yaml_values import convert

STORY_ROOT = Path(__file__).resolve().parent


class Interface:
    """The words of the interface in one language.

    A key this language lacks is looked for in the other; one that no language has is shown as
    `[key]`, so that a missing word never stops a game.
    """

    def __init__(self, language: Language, root: Path = STORY_ROOT) -> None:
        self.language = language
        self._root = root
        self._texts = load_interface_texts(language, root)

    def text(self, key: str, /, **values: object) -> str:
        """The text of `key` with `{name}` placeholders filled from `values`."""
        found = self.find(key)
        return f"[{key}]" if found is None else fill(found, values)

    def find(self, key: str) -> str | None:
        """The text as written, or None where neither language has it."""
        if key in self._texts:
            return self._texts[key]
        for other in LANGUAGES:
            if other != self.language:
                try:
                    texts = load_interface_texts(other, self._root)
                except StoryError:
                    continue
                if key in texts:
                    return texts[key]
        return None

    def __contains__(self, key: object) -> bool:
        return key in self._texts

    @property
    def keys(self) -> frozenset[str]:
        """The keys this language itself has."""
        return frozenset(self._texts)


@lru_cache(maxsize=8)
def load_stages(root: Path = STORY_ROOT) -> tuple[Stage, ...]:
    """Every stage, by order.

    Raises:
        StoryError: a file that does not fit the schema, or names a knob, metric or stage that is
            not there.
    """
    # Imported here: the title needs words at once, and halls (with every metric) a moment later.
    from story.stage_check import check_order, check_stage

    documents = [read_document(file) for file in sorted((root / "stages").glob("*.yaml"))]
    stages = [(document, convert(document, Stage)) for document in documents]
    for document, stage in stages:
        check_stage(document, stage)
    return check_order(stages)


def load_stage_file(file: Path) -> Stage:
    """One stage from any place, checked as the shipped ones are. Raises StoryError likewise."""
    from story.stage_check import check_stage

    document = read_document(file)
    stage = convert(document, Stage)
    check_stage(document, stage)
    return stage


@lru_cache(maxsize=64)
def load_text(stage_id: str, language: Language, root: Path = STORY_ROOT) -> StageText:
    """A stage's words in one language.

    Raises:
        StoryError: no such file, or one that does not fit the schema.
    """
    document = read_document(text_file(stage_id, language, root))
    text = convert(document, StageText)
    if text.stage != stage_id:
        raise document.error(("stage",), f"the file is named {stage_id!r}, not {text.stage!r}")
    return text


def text_file(stage_id: str, language: Language, root: Path = STORY_ROOT) -> Path:
    """Where a stage's words stand.

    Raises:
        StoryError: an id that could lead out of the story's folder.
    """
    file = root / language / "stages" / f"{stage_id}.yaml"
    if not stage_id.isidentifier():
        raise StoryError(file, 0, 0, f"{stage_id!r} is not a stage id")
    return file


@lru_cache(maxsize=8)
def load_interface(language: Language, root: Path = STORY_ROOT) -> Interface:
    """The interface text of one language, merged from every file of its folder.

    Raises:
        StoryError: a file that is not a flat map of texts, or a key given in two files.
    """
    return Interface(language, root)


@lru_cache(maxsize=8)
def load_interface_texts(language: Language, root: Path = STORY_ROOT) -> Mapping[str, str]:
    """Key -> text as written. Raises StoryError as `load_interface` does."""
    texts: dict[str, str] = {}
    homes: dict[str, Path] = {}
    for file in sorted((root / language / "interface").glob("*.yaml")):
        document = read_document(file)
        for key, text in convert(document, dict[str, str]).items():
            if key in texts:
                fault = f"{key!r} is also given in {homes[key].name}"
                raise document.error((key,), fault, at_key=True)
            texts[key] = text
            homes[key] = file
    return texts
