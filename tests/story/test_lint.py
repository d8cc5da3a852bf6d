"""The linter: the shipped story is clean, and each fault put into a copy is found at its line."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from story.lint import Finding, lint_story
from story.loader import STORY_ROOT

PENDULUM, GATE = "en/stages/pendulum.yaml", "en/stages/gate.yaml"
WORDS = "en/interface/story.yaml"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    no_code = shutil.ignore_patterns("*.py*")
    return Path(shutil.copytree(STORY_ROOT, tmp_path / "story", ignore=no_code))


def spoil(file: Path, old: str, new: str) -> int:
    """Replace the first `old`; returns its line."""
    text = file.read_text("utf-8")
    assert old in text, f"{old!r} is not in {file.name}: mend the test"
    file.write_text(text.replace(old, new, 1), "utf-8")
    return text[: text.index(old)].count("\n") + 1


def found(root: Path, code: str) -> list[Finding]:
    findings = lint_story(root)
    mine = [finding for finding in findings if finding.code == code]
    assert mine, f"no {code!r} among: {[str(finding) for finding in findings]}"
    return mine


def test_the_shipped_story_is_clean() -> None:
    assert [str(finding) for finding in lint_story()] == []


def test_a_clean_copy_is_clean(root: Path) -> None:
    assert lint_story(root) == ()


# (file, old, new, code, where the finding stands relative to the changed line; None: anywhere)
SEEDED = [
    # unknown variables
    (PENDULUM, "{tpot_ratio:.2f}. The weights", "{tpot_rato:.2f}. The weights", "unknown-fact", 0),
    (PENDULUM, '{fact: attempts, op: ">=", value: 3}',
     '{fact: atempts, op: ">=", value: 3}', "unknown-fact", 0),
    (PENDULUM, "= {intensity:.1f};", "= {intensty:.1f};", "unknown-fact", None),
    (PENDULUM, "hints:\n  - A decode", "hints:\n  - At {batch}, a decode", "unknown-fact", 1),
    # facts before they can be known
    (GATE, "One request, {prompt} tokens in", "So {prompt} and {truth_word} in", "too-early", 0),
    (PENDULUM, "You said {guess_word}, and it is sealed.",
     "Said {guess_word}, {truth}.", "too-early", 0),
    # conditions that cannot be
    (PENDULUM, '{fact: guess_factor, op: "<", value: 10}',
     '{fact: guess_factor, op: "<", value: 3}', "unreachable", None),
    (PENDULUM, '{fact: verdict, op: "==", value: inconclusive}',
     '{fact: verdict, op: "==", value: fail}', "condition", 0),
    (PENDULUM, '{fact: hints_taken, op: ">=", value: 3}',
     '{fact: hints_taken, op: ">=", value: 4}', "unreachable", None),
    (PENDULUM, '{fact: precision, op: "==", value: float32}',
     '{fact: precision, op: ">=", value: float32}', "condition", 0),
    (PENDULUM, '{fact: guess_close, op: "==", value: true}',
     "{fact: guess_close, op: \"==\", value: 'yes'}", "condition", 0),
    (PENDULUM, "value: compute}", "value: computing}", "condition", 0),
    (GATE, '{fact: guess, op: "==", value: compute}',
     '{fact: guess, op: "==", value: compte}', "condition", 0),
    # answers nobody gives
    (GATE, '{fact: guess, op: "==", value: capacity}',
     '{fact: guess, op: "==", value: compute}', "gap", None),
    (GATE, '{fact: truth, op: "==", value: compute}',
     '{fact: truth, op: "==", value: none}', "gap", None),
    (PENDULUM, '{fact: guess_factor, op: ">=", value: 10}',
     '{fact: guess_factor, op: ">=", value: 12}', "gap", None),
    # dead ends
    (GATE, "  undecided:", "  forge_later:", "schema", 0),
    (PENDULUM, "question: How", "question: ''\nplace_: How", "schema", None),
    (GATE, "choices:\n  compute: compute\n", "choices:\n", "choices", None),
    (GATE, "  - Set prompt=1024 and output=8", "  - Set prompt=1000 and output=8", "hints", 0),
    (PENDULUM, "  - A decode step reads", "  - more\n  - A decode step reads", "hints", None),
    # ids
    (PENDULUM, "id: pendulum.arrival.rods", "id: rods", "line-id", 0),
    (PENDULUM, "id: pendulum.arrival.rods", "id: pendulum.arrival.prefill", "duplicate", None),
    (GATE, "text: It is only a forward pass. I have run billions of those.",
     "text: One question, before you bet. I am old and generous.", "duplicate", None),
    (PENDULUM, "- id: cache", "- id: weights", "duplicate", None),
    # the two languages
    (PENDULUM, "id: pendulum.forge.goals", "id: pendulum.forge.laws", "missing-line", None),
    (PENDULUM, "- id: chunk", "- id: chunks", "missing-line", None),
    (PENDULUM, "there are {batch} riders", "there are eight riders", "placeholder", 0),
    (PENDULUM, "who: elder\n      text: The thick one",
     "who: wall\n      text: The thick one", "differs", 0),
    (PENDULUM, "value: 5}", "value: 6}", "differs", None),
    (WORDS, "story.sealed: sealed\n", "", "missing-key", None),
    (WORDS, "story.sealed:", "story.seeled:", "missing-key", 0),
    (WORDS, "{debt} runes owed", "runes owed", "placeholder", 0),
    (WORDS, "story.scar: scar", "speaker.elder: scar", "schema", 0),
    (PENDULUM, "text: The thick one", "text: 粗的那杆 The thick one", "untranslated", 0),
    (WORDS, "story.ledger: ledger", "story.ledger: 账册", "untranslated", 0),
    ("zh/interface/story.yaml", "story.tagline: 先猜，再量，欠账自负",
     "story.tagline: guess first and then measure", "untranslated", 0),
    # text that does not fit or does not show
    (PENDULUM, "Move the needle.", "Move the needle. " + "Move it. " * 30, "too-wide", 0),
    ("zh/stages/gate.yaml", "name: 青铜壁", "name: 青铜壁青铜壁青铜壁青铜壁青", "too-wide", 0),
    (GATE, "One question, before you bet.",
     "One question\u2026 before you bet.", "ambiguous-width", 0),
    (GATE, "One question, before you bet.",
     "One question \u26a0\ufe0f before you bet.", "emoji", 0),
    (WORDS, "story.scar: scar", "story.scar: scar \U0001f600", "emoji", 0),
    (WORDS, "story.scar: scar", "story.scar: scar {a.b}", "braces", 0),
    (GATE, "One question, before you bet.", "One {question, before you bet.", "braces", 0),
    (GATE, "One question, before you bet.", "TODO One question.", "leftover", 0),
    (WORDS, "story.scar: scar", "story.scar: ' '", "empty", 0),
    # files
    ("stages/pendulum.yaml", "metric: kl", "metric: kll", "schema", 0),
    (PENDULUM, "who: narrator", "who: narator", "schema", 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "old", "new", "code", "offset"),
    [pytest.param(*case, id=f"{n}-{case[3]}") for n, case in enumerate(SEEDED)],
)
def test_a_seeded_fault_is_found(
    root: Path, file: str, old: str, new: str, code: str, offset: int | None
) -> None:
    line = spoil(root / file, old, new)
    mine = found(root, code)
    assert all(str(root) in str(finding) for finding in mine)
    if offset is not None:
        assert (root / file, line + offset) in {(one.file, one.line) for one in mine}


def test_a_missing_text_is_found(root: Path) -> None:
    (root / "zh/stages/loom.yaml").unlink()
    assert [one.file.name for one in found(root, "missing-text")] == ["loom.yaml"]


def test_words_for_no_stage_are_found(root: Path) -> None:
    (root / "zh/stages/lom.yaml").write_text("stage: lom\nname: a\nplace: b\n", "utf-8")
    assert [one.file.name for one in found(root, "orphan")] == ["lom.yaml"]


def test_a_closed_hall_must_say_why(root: Path) -> None:
    (root / "en/stages/loom.yaml").write_text("stage: loom\nname: Loom\nplace: there\n", "utf-8")
    assert found(root, "dead-end")[0].file.name == "loom.yaml"


@pytest.mark.parametrize("scene", ["arrival", "forge", "passed", "failed", "undecided", "insight"])
def test_an_open_hall_without_a_scene_is_a_dead_end(root: Path, scene: str) -> None:
    for language in ("zh", "en"):
        without_scene(root / language / "stages/pendulum.yaml", scene, keep=lambda line: False)
    assert all(repr(scene) in one.message for one in found(root, "dead-end"))


def test_a_scene_whose_every_line_has_a_condition_is_a_dead_end(root: Path) -> None:
    for language in ("zh", "en"):
        without_scene(
            root / language / "stages/pendulum.yaml", "undecided", keep=lambda line: "when:" in line
        )
    assert len(found(root, "dead-end")) == 2


def test_a_scene_that_always_needs_a_rare_fact_is_a_dead_end(root: Path) -> None:
    for language in ("zh", "en"):
        without_scene(
            root / language / "stages/pendulum.yaml", "insight", keep=lambda line: "{" in line
        )
    assert len(found(root, "dead-end")) == 2


def without_scene(file: Path, scene: str, keep: Callable[[str], bool]) -> None:
    """Leave of a scene only the lines `keep` keeps, as blocks of text; of none, the scene goes."""
    text = file.read_text("utf-8")
    head, _, rest = text.partition(f"  {scene}:\n")
    ends = [at for at in (rest.find("\n  " + name) for name in SCENE_HEADS) if at >= 0]
    end = min([*ends, rest.index("\n\nhints:")])
    blocks = [block for block in rest[:end].split("    - id:")[1:] if keep(block)]
    kept = "".join("    - id:" + block for block in blocks)
    file.write_text(head + (f"  {scene}:\n{kept}" if kept else "") + rest[end:], "utf-8")


SCENE_HEADS = ("arrival:", "forge:", "passed:", "failed:", "undecided:", "insight:")


def test_a_broken_file_does_not_hide_the_rest(root: Path) -> None:
    (root / "zh/stages/gate.yaml").write_text("a: [\n", "utf-8")
    spoil(root / WORDS, "story.scar: scar", "story.scar: scar \U0001f600")
    assert {"schema", "emoji"} <= {finding.code for finding in lint_story(root)}


def test_the_command_prints_findings_and_exits_one(root: Path) -> None:
    """Runs the module on the shipped story: 0; the same code on a spoilt one: 1."""
    clean = subprocess.run(
        [sys.executable, "-m", "story.lint"], capture_output=True, text=True, timeout=60
    )
    assert (clean.returncode, clean.stdout) == (0, "")
    spoil(root / GATE, "who: narrator", "who: narator")
    code = (
        "import sys, pathlib, functools, story.lint as lint\n"
        f"lint.lint_story = functools.partial(lint.lint_story, pathlib.Path({str(root)!r}))\n"
        "sys.exit(lint.main())"
    )
    dirty = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert dirty.returncode == 1
    assert f"{root / GATE}:" in dirty.stdout and "nearest: narrator" in dirty.stdout
