"""Stages, scenes and interface text: checked on the way in, never a crash on the way out."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from story.loader import (
    STORY_ROOT,
    Interface,
    load_interface,
    load_stage_file,
    load_stages,
    load_text,
)
from story.schema import LANGUAGES
from story.yaml_reader import StoryError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the shipped story to spoil."""
    no_code = shutil.ignore_patterns("*.py*")
    return Path(shutil.copytree(STORY_ROOT, tmp_path / "story", ignore=no_code))


def spoil(file: Path, old: str, new: str) -> int:
    """Replace the first `old`; returns its line."""
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), "utf-8")
    return text[: text.index(old)].count("\n") + 1


def test_ten_halls_in_the_order_of_the_tale() -> None:
    stages = load_stages()
    assert [stage.id for stage in stages] == [
        "gate", "pendulum", "abyss", "furnace", "paging", "loom", "precision", "plaza",
        "questions", "mirror",
    ]  # fmt: skip
    assert [stage.order for stage in stages] == list(range(10))
    built = [stage for stage in stages if stage.open]
    assert [stage.id for stage in built] == [
        "gate", "pendulum", "abyss", "furnace", "paging", "precision", "plaza",
    ]  # fmt: skip
    for before, stage in zip(built, built[1:], strict=False):
        assert stage.opens_after == before.id  # a hall that is not built bars no way


def test_the_pendulum_asks_what_the_design_asks() -> None:
    pendulum = load_stages()[1]
    goals = {(goal.metric, goal.op, goal.bound) for goal in pendulum.goals}
    assert goals == {("decode_throughput_ratio", ">=", 6.0), ("tpot_ratio", "<=", 1.6)}
    assert pendulum.build == pendulum.reference
    assert pendulum.hint_build == {"schedule.batch": 8, "run.precision": "bfloat16"}
    assert pendulum.guess is not None
    assert (pendulum.guess.metric, pendulum.guess.close) == ("decode_cost_ratio", 1.5)


def test_the_gate_cannot_be_failed() -> None:
    gate = load_stages()[0]
    assert gate.trial == "timeline" and gate.goals == () and gate.opens_after is None
    assert gate.guess is not None
    assert gate.guess.choices == ("compute", "bandwidth", "capacity", "launch overhead")


STAGE_FAULTS = [
    ("[schedule.batch,", "[schedule.bacth,", "'schedule.bacth'; nearest: schedule.batch"),
    ("metric: tpot_ratio", "metric: tpot_rate", "'tpot_rate'; nearest: tpot_ratio"),
    ("metric: kl", "metric: kll", "nearest: kl"),
    ("metric: decode_cost_ratio", "metric: bottleneck", "a dial needs a metric that is a number"),
    ("metric: tpot_ratio", "metric: bottleneck", "has no bound"),
    ("schedule.batch: 1", "schedule.batch: 0", "schedule.batch: 0 is outside its range"),
    ("run.precision: bfloat16", "run.precision: bfloat17", "nearest: bfloat16"),
    ("  schedule.batch: 8", "  run.threads: 8", "'run.threads' is not a knob of this hall"),
    ("low: 1", "low: 0", "0 < low < high"),
    ("high: 300", "high: 1", "0 < low < high"),
    ("close: 1.5", "close: 1", "a factor above 1"),
    ("id: pendulum", "id: pendulm", "the file is named 'pendulum'"),
    ("opens_after: gate", "opens_after: gaet", "no hall is named 'gaet'; nearest: gate"),
    ("opens_after: gate", "opens_after: abyss", "'abyss' does not come before"),
    ("order: 1", "order: 2", "has the order 2 already"),
    ("trial: paired", "trial: pared", "nearest: paired"),
    ("goals:", "gaols:", "no field is named 'gaols'; nearest: goals"),
    ("bound: 6", 'bound: "6"', "got `str`"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "fault"), STAGE_FAULTS)
def test_a_stage_fault_names_its_line_and_the_nearest_name(
    root: Path, old: str, new: str, fault: str
) -> None:
    file = root / "stages" / "pendulum.yaml"
    line = spoil(file, old, new)
    with pytest.raises(StoryError) as caught:
        load_stages(root)
    assert fault in caught.value.fault
    if caught.value.file == file:  # two halls of one order: either may be named
        assert caught.value.line == line


def test_a_gate_with_one_choice_or_a_number_to_choose_is_refused(root: Path) -> None:
    gate = root / "stages" / "gate.yaml"
    spoil(gate, "[compute, bandwidth, capacity, launch overhead]", "[compute, compute]")
    with pytest.raises(StoryError, match="two or more choices"):
        load_stage_file(gate)
    spoil(gate, "metric: bottleneck", "metric: kl")
    with pytest.raises(StoryError, match="needs a metric that is a word"):
        load_stage_file(gate)


def test_a_proof_must_name_real_builds(root: Path) -> None:
    file = root / "stages" / "pendulum.yaml"
    proof = (
        "proof:\n  date: '2026-01-01'\n  device: some\n  losers: [{schedule.batch: 1}]\n"
        "  winners:\n    - {schedule.batch: 8}\n    - {schedule.batch: 900}\n"
    )
    text = file.read_text("utf-8").split("proof:")[0]
    file.write_text(text + proof.replace("900", "16"), "utf-8")
    assert load_stage_file(file).proof is not None
    file.write_text(text + proof, "utf-8")
    with pytest.raises(StoryError, match="900 is outside its range") as caught:
        load_stage_file(file)
    assert caught.value.line == (text + proof).count("\n")


def test_a_closed_hall_promises_nothing(root: Path) -> None:
    file = root / "stages" / "loom.yaml"
    file.write_text(file.read_text("utf-8") + "knobs: [schedule.batch]\n", "utf-8")
    with pytest.raises(StoryError, match="a closed hall has no 'knobs'"):
        load_stages(root)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_hall_has_its_words(language: str) -> None:
    for stage in load_stages():
        text = load_text(stage.id, language)  # type: ignore[arg-type]
        assert text.name and text.place
        assert bool(text.scenes) is stage.open
        assert bool(text.closed) is not stage.open


@pytest.mark.parametrize("name", ["../interface/story", "a/b", "", "gate.yaml", "/etc/passwd"])
def test_a_stage_id_cannot_lead_out_of_the_folder(name: str) -> None:
    with pytest.raises(StoryError, match="is not a stage id"):
        load_text(name, "en")


def test_an_absent_or_misnamed_text_is_an_error(root: Path) -> None:
    with pytest.raises(StoryError, match="cannot be read"):
        load_text("nowhere", "en", root)
    spoil(root / "en" / "stages" / "gate.yaml", "stage: gate", "stage: gaet")
    with pytest.raises(StoryError, match="the file is named 'gate', not 'gaet'"):
        load_text("gate", "en", root)


def interface_files(root: Path, **files: str) -> Path:
    for name, text in files.items():
        language, room = name.split("_")
        folder = root / language / "interface"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{room}.yaml").write_text(text, "utf-8")
    return root


def test_interface_text_is_merged_and_filled(tmp_path: Path) -> None:
    root = interface_files(tmp_path, en_a="hall.debt: owes {debt}", en_b="go: Go on", zh_a="x: 甲")
    words = load_interface("en", root)
    assert words.text("hall.debt", debt=7) == "owes 7"
    assert words.text("go") == "Go on"
    assert words.text("hall.debt") == "owes {debt}"
    assert words.keys == {"hall.debt", "go"} and "go" in words and "x" not in words


def test_a_missing_key_falls_back_and_then_shows_itself(tmp_path: Path) -> None:
    root = interface_files(tmp_path, en_a="a: A\n", zh_a="a: 甲\nb: 乙 {n}\n")
    words = Interface("en", root)
    assert words.text("a") == "A"
    assert words.text("b", n=2) == "乙 2"
    assert words.text("remark.unheard_of", key="x", n=2) == "[remark.unheard_of]"


def test_a_broken_other_language_does_not_stop_this_one(tmp_path: Path) -> None:
    root = interface_files(tmp_path, en_a="a: A\n", zh_a="a: [\n")
    assert Interface("en", root).text("b") == "[b]"
    with pytest.raises(StoryError, match="not YAML"):
        load_interface("zh", root)


def test_a_key_in_two_files_is_refused(tmp_path: Path) -> None:
    root = interface_files(tmp_path, en_a="x: 1st\nk: A\n", en_b="y: Y\nz: Z\nk: B\n")
    with pytest.raises(StoryError) as caught:
        load_interface("en", root)
    assert (caught.value.file.name, caught.value.line) == ("b.yaml", 3)
    assert "also given in a.yaml" in caught.value.fault


def test_interface_text_must_be_text(tmp_path: Path) -> None:
    root = interface_files(tmp_path, en_a="a: A\nb: 3\n")
    with pytest.raises(StoryError, match="put it in quotes") as caught:
        load_interface("en", root)
    assert caught.value.line == 2


def test_loading_is_cached() -> None:
    assert load_interface("zh") is load_interface("zh")
    assert load_stages() is load_stages()
    assert load_text("gate", "zh") is load_text("gate", "zh")


def test_the_story_needs_neither_torch_nor_numpy_nor_a_screen() -> None:
    code = (
        "import sys, story.loader, story.facts, story.lint\n"
        "story.loader.load_stages(); story.loader.load_interface('zh')\n"
        "print([m for m in ('torch', 'numpy', 'textual', 'rich', 'saves', 'game') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
