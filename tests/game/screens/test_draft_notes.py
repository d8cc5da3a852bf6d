"""What the forge says of a draft's knobs together, by name: the words are the interface's."""

from __future__ import annotations

import msgspec
import pytest
from canned_memory import config_of
from canned_trials import MODEL

from engine.domains import Value
from engine.drafters import Drafters, TrainedHead
from game.screens.draft_notes import draft_notes
from game.screens.forge_notes import ForgeNote
from story.loader import load_interface_texts
from story.schema import LANGUAGES

LARGE = msgspec.structs.replace(MODEL, layers=2 * MODEL.layers)
DRAFTERS = Drafters(TrainedHead(MODEL.hidden, 1024, 8192), LARGE, "a large one")


def say(key: str, **values: object) -> str:
    told = " ".join(f"{name}={value}" for name, value in values.items())
    return f"{key.removeprefix('forge.note.')} {told}".strip()


def notes_of(knob: str = "", **draft: Value) -> list[ForgeNote]:
    build = {f"draft.{name}": value for name, value in draft.items()}
    config = config_of({"run.precision": "float32", **build})
    return draft_notes(say, config, MODEL, DRAFTERS, (), knob)


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        ({}, ["nobody_drafts"]),
        ({"kind": "ngram"}, ["look_up"]),
        # 3.5 M of three matrices and 4.7 M of rows, of 134.5 M
        # r + r^2 + r^3 + r^4 = 0.229 at r = 0.19
        (
            {"kind": "trained", "length": 4},
            ["draft_reads each=5.7 % length=4 whole=23 % draft_pays_from chance=19 %"],
        ),
        # 27 of 30 layers of 3.54 M and a head of 28.3 M
        (
            {"kind": "exit", "length": 2},
            [  # r + r^2 = 1.84
                "draft_reads each=92 % length=2 whole=184 % draft_pays_from chance=95 %",
                "exit_auto layers=27 all=30",
            ],
        ),
        (
            {"kind": "exit", "exit_layer": 15},
            ["draft_reads each=61 % length=4 whole=242 % draft_pays_from chance=81 %"],
        ),
    ],
)
def test_what_is_read_is_told_by_formula(draft: dict[str, Value], said: list[str]) -> None:
    found = notes_of(**draft)
    assert [note.words for note in found] == said
    assert not any(note.warns for note in found)


def test_a_draft_larger_than_its_target_is_warned_of() -> None:
    (note,) = notes_of(kind="model")
    assert note.warns and note.words == "draft_too_large ratio=1.79"


@pytest.mark.parametrize(
    ("knob", "kind", "other"),
    [("draft.ngram", "self4", "ngram"), ("draft.exit_layer", "ngram", "exit")],
)
def test_a_knob_that_reaches_nothing_says_so_while_it_is_turned(
    knob: str, kind: str, other: str
) -> None:
    said = f"of_another_draft kind=knob.value.{other}"
    assert notes_of(knob, kind=kind)[-1].words == said
    assert said not in [note.words for note in notes_of(kind=kind)]
    assert said not in [note.words for note in notes_of(knob, kind=other)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_note_has_its_words(language: str) -> None:
    texts = load_interface_texts(language)

    def told(key: str, **values: object) -> str:
        return texts[key].format(**values)

    builds = ({"kind": kind} for kind in ("none", "ngram", "trained", "exit", "model"))
    for build in builds:
        config = config_of({f"draft.{name}": value for name, value in build.items()})
        for note in draft_notes(told, config, MODEL, DRAFTERS, (), "draft.ngram"):
            assert note.words and "{" not in note.words
