"""What a stage file may say of weights in fewer bits: its scar, its ladder, its questions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from story.loader import load_stage_file
from story.yaml_reader import StoryError

WALL = """\
id: wall
order: 6
open: true
trial: paired
scar: cliff
probes: true
ladder: [8, 4, 3, 2]
guess: {kind: choice, metric: breaking_bits, choices: ["8", "4", "3", "2", none]}
knobs: [weights.bits, weights.method]
build: {weights.bits: 0}
goals:
  - {metric: kl, op: "<=", bound: 0.3}
  - {metric: probes_right, op: ">=", bound: 0.7}
"""


def checked(folder: Path, old: str = "", new: str = "") -> None:
    """The wall with `old` spoilt into `new`."""
    assert old in WALL
    file = folder / "wall.yaml"
    file.write_text(WALL.replace(old, new, 1) if old else WALL, "utf-8")
    load_stage_file(file)


def test_a_wall_that_holds_is_taken(tmp_path: Path) -> None:
    checked(tmp_path)
    checked(tmp_path, '["8", "4", "3", "2", none]', '["4", "3"]')


@pytest.mark.parametrize(
    ("old", "new", "line", "fault"),
    [
        ("[weights.bits, ", "[", 5, "offer weights.bits"),
        ('{metric: kl, op: "<=", bound: 0.3}', '{metric: tpot_ratio, op: "<=", bound: 0.3}', 5,
         "bound kl"),
        ("probes: true", "probes: true\nshared: [weights.method, weights.bit]", 7,
         "no knob is named 'weights.bit'; nearest: weights.bits"),
        ("probes: true", "probes: true\nshared: [run.threads]", 7,
         "no knob is named 'run.threads'"),
        ("[8, 4, 3, 2]", "[16, 4]", 7, "no rung has 16 bits; legal: 8, 4, 3, 2"),
        ("[8, 4, 3, 2]", "[8, 3, 4]", 7, "the widest first"),
        ("[8, 4, 3, 2]", "[8, 8, 4]", 7, "each width once"),
        ("trial: paired", "trial: serve", 7, "'ladder' needs a trial that runs to its end"),
        ("trial: paired", "trial: hold", 7, "'ladder' needs a trial that runs to its end"),
        ("probes: true\n", "", 12, "write `probes: true`"),
        ("ladder: [8, 4, 3, 2]\n", "", 7, "write `ladder:`"),
        ('"2", none]', '"2", "16"]', 8, "'16' is no rung of the ladder; legal: 8, 4, 3, 2, none"),
        ("[8, 4, 3, 2]", "[8, 4, 3]", 8, "'2' is no rung of the ladder; legal: 8, 4, 3, none"),
        ("kind: choice", "kind: dial", 8,
         "a dial needs a metric that is a number"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named_at_its_line(
    tmp_path: Path, old: str, new: str, line: int, fault: str
) -> None:
    with pytest.raises(StoryError, match=re.escape(fault)) as caught:
        checked(tmp_path, old, new)
    assert caught.value.line == line


def test_questions_need_a_trial_that_runs_to_its_end(tmp_path: Path) -> None:
    text = WALL.replace("ladder: [8, 4, 3, 2]\n", "").replace("trial: paired", "trial: serve")
    text = text.replace('choices: ["8", "4", "3", "2", none]', "choices: [bandwidth, compute]")
    file = tmp_path / "wall.yaml"
    file.write_text(text.replace("breaking_bits", "bottleneck"), "utf-8")
    with pytest.raises(StoryError, match="'probes' needs a trial that runs to its end"):
        load_stage_file(file)


@pytest.mark.parametrize("kind", ["timeline", "hold", "serve"])
def test_the_gain_of_four_bits_is_between_two_builds(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "wall.yaml"
    file.write_text(
        f"id: wall\norder: 3\nopen: true\ntrial: {kind}\n"
        "guess: {kind: dial, metric: four_bit_gain, low: 0.2, high: 20, close: 1.25}\n"
        "knobs: [weights.bits]\n",
        "utf-8",
    )
    with pytest.raises(StoryError, match="it is measured in: paired"):
        load_stage_file(file)
