"""What the forge says of knobs together, by name: the words are the interface's."""

from __future__ import annotations

import pytest
from canned_memory import config_of
from canned_trials import CAPABILITIES, MODEL
from rich.cells import cell_len

from engine.domains import Value
from engine.weight_format import FUSED
from game.screens.forge_notes import ForgeNote, forge_notes, note_lines
from game.widgets.ink import plain

FORMS = CAPABILITIES.low_bit_forms["bfloat16"]


def say(key: str, **values: object) -> str:
    told = " ".join(f"{name}={value}" for name, value in values.items())
    return f"{key.removeprefix('forge.note.')} {told}".strip()


def notes_of(knob: str = "", **weights: Value) -> list[ForgeNote]:
    build = {f"weights.{name}": value for name, value in weights.items()}
    config = config_of({"run.precision": "bfloat16", "workload.prompt": 1024, **build})
    return forge_notes(say, config, MODEL, FORMS, knob)


@pytest.mark.parametrize(
    ("weights", "warned"),
    [
        ({"bits": 4, "group": 32}, []),
        ({"bits": 4, "group": 96}, ["slow_form matrices=120"]),
        ({"bits": 4, "group": 32, "crossover": 0}, ["never_dense rows=1,024"]),
        ({"bits": 4, "group": 32, "method": "gptq", "calibration": 1536}, []),
        ({"embedding": 8, "method": "awq"}, ["nothing_to_do method=knob.value.awq"]),
    ],
)
def test_warnings_are_of_what_may_do_harm(weights: dict[str, Value], warned: list[str]) -> None:
    assert [note.words for note in notes_of(**weights) if note.warns] == warned


def test_codes_that_a_compiled_product_takes_are_not_called_slow() -> None:
    config = config_of({"run.precision": "bfloat16", "weights.bits": 3, "weights.group": 96})
    for forms, slow in ((FORMS, True), ((*FORMS, FUSED), False)):
        words = [note.words for note in forge_notes(say, config, MODEL, forms)]
        assert any(one.startswith("slow_form") for one in words) == slow


def test_auto_says_what_it_stands_for() -> None:
    assert any("bits=4 group=64" in note.words for note in notes_of(bits=4))
    assert any("group.row bits=8" in note.words for note in notes_of(bits=8))
    assert not any(note.words.startswith("group ") for note in notes_of(bits=4, group=32))


def test_what_rounding_does_not_read_is_said_while_it_is_turned() -> None:
    told = ForgeNote("reads_nothing")
    assert told in notes_of("weights.calibration", bits=4)
    assert told not in notes_of("weights.method", bits=4)
    assert told not in notes_of("weights.calibration", bits=4, method="awq")


def test_full_width_says_so_and_nothing_else() -> None:
    assert notes_of() == [ForgeNote("bits_full")]


def test_warnings_keep_their_room_and_have_a_sign() -> None:
    notes = [ForgeNote("w" * 30, warns=True), ForgeNote("told " * 20)]
    lines = [plain(line) for line in note_lines(notes, 40, 2)]
    assert lines == ["! " + "w" * 30]
    assert all(cell_len(plain(line)) <= 40 for line in note_lines(notes, 40, 9))
