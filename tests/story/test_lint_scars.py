"""The linter on halls that demand a scar: their two scenes, and what each of them can know."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from story.lint import Finding, lint_story
from story.loader import STORY_ROOT, StoryError, load_stage_file
from story.schema import LANGUAGES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    no_code = shutil.ignore_patterns("*.py*")
    return Path(shutil.copytree(STORY_ROOT, tmp_path / "story", ignore=no_code))


def found(root: Path, code: str) -> list[Finding]:
    findings = lint_story(root)
    mine = [finding for finding in findings if finding.code == code]
    assert mine, f"no {code!r} among: {[str(finding) for finding in findings]}"
    return mine


def add_line(root: Path, hall: str, scene: str, text: str, *when: str) -> None:
    """A line of the narrator's at the head of a scene, in both languages; the scene is made where
    the hall has none."""
    for language, words in zip(LANGUAGES, ("添一句", "One more"), strict=True):
        file = root / language / "stages" / f"{hall}.yaml"
        whole = file.read_text("utf-8")
        if f"\n  {scene}:\n" not in whole:
            whole = whole.replace("\nscenes:\n", f"\nscenes:\n  {scene}:\n", 1)
        conditions = "".join(f"        - {one}\n" for one in when)
        line = f"    - id: {hall}.{scene}.added\n      who: narrator\n"
        line += f"      when:\n{conditions}" if when else ""
        line += f"      text: {words} {text}\n"
        file.write_text(whole.replace(f"\n  {scene}:\n", f"\n  {scene}:\n{line}", 1), "utf-8")


def drop_scene(root: Path, hall: str, scene: str) -> None:
    for language in LANGUAGES:
        file = root / language / "stages" / f"{hall}.yaml"
        whole = file.read_text("utf-8")
        rest = re.sub(rf"\n  {scene}:\n(?:(?:    .*)?\n)+", "\n", whole, count=1)
        assert rest != whole
        file.write_text(rest, "utf-8")


@pytest.mark.parametrize("scene", ["descent", "scar"])
def test_a_hall_that_demands_a_scar_tells_of_it(root: Path, scene: str) -> None:
    drop_scene(root, "abyss", scene)
    dead = found(root, "dead-end")
    assert len(dead) == 2 and all(repr(scene) in one.message for one in dead)


@pytest.mark.parametrize("scene", ["descent", "scar"])
def test_a_hall_that_demands_none_does_not(root: Path, scene: str) -> None:
    add_line(root, "pendulum", scene, "{batch}")
    assert all("demands a scar" in one.message for one in found(root, "no-scar"))


@pytest.mark.parametrize(
    ("hall", "scene", "text"),
    [
        ("abyss", "scar", "{kl}"),
        ("abyss", "scar", "{decode_tokens_s}"),
        ("abyss", "passed", "{flood_fits}"),
        ("abyss", "failed", "{flood_running}"),
        ("abyss", "descent", "{flood_asked_mb}"),
        ("abyss", "undecided", "{flood_over_mb}"),
        ("paging", "insight", "{flood_fits}"),
    ],
)
def test_a_fact_of_another_kind_of_trial_is_never_known(
    root: Path, hall: str, scene: str, text: str
) -> None:
    add_line(root, hall, scene, text)
    never = found(root, "never-known")
    assert all(repr(text.strip("{}")) in one.message for one in never) and len(never) == 2


@pytest.mark.parametrize(
    ("hall", "scene", "text"),
    [
        ("abyss", "scar", "{flood_fits} {live_tokens} {held_mb} {kv_request_mb} {vessel_mb}"),
        ("abyss", "insight", "{flood_fits} {kl}"),
        ("abyss", "descent", "{live_tokens} {kl} {slots}"),
        ("paging", "failed", "{flood_fits}"),  # it may run over, and has only failed then
    ],
)
def test_what_a_scene_can_know_is_no_finding(root: Path, hall: str, scene: str, text: str) -> None:
    add_line(root, hall, scene, text)
    assert [one.code for one in lint_story(root) if one.code in ("never-known", "too-early")] == []


@pytest.mark.parametrize(
    ("scene", "condition"),
    [
        ("scar", '{fact: flooded, op: "==", value: false}'),
        ("scar", '{fact: scar, op: "!=", value: true}'),
        ("descent", '{fact: scar, op: "==", value: true}'),
        ("descent", '{fact: met, op: "==", value: false}'),
        ("passed", '{fact: flooded, op: "==", value: true}'),
        ("failed", '{fact: flooded, op: "==", value: true}'),
        ("insight", '{fact: scar, op: "==", value: false}'),
        ("descent", '{fact: verdict, op: "==", value: fail}'),
    ],
)
def test_a_condition_that_the_scene_itself_rules_out_is_found(
    root: Path, scene: str, condition: str
) -> None:
    add_line(root, "abyss", scene, "{batch}", condition)
    codes = {finding.code for finding in lint_story(root)}
    assert codes & {"unreachable", "condition"}


def test_a_flood_before_any_pass_can_be_told_apart(root: Path) -> None:
    add_line(root, "abyss", "scar", "{batch}", '{fact: met, op: "==", value: false}')
    assert not {finding.code for finding in lint_story(root)} & {"unreachable", "condition"}


def test_a_scar_that_no_build_can_leave_is_refused(root: Path) -> None:
    file = root / "stages" / "abyss.yaml"
    whole = file.read_text("utf-8")
    head, build, rest = re.split(r"(?=\nbuild:)|(?=\n# One request)", whole, maxsplit=2)
    for old, new, said in (
        ("memory.overflow: break", "memory.overflow: wait", "needs memory.overflow: break"),
        ("memory.budget: 95", "memory.budget: 0", "needs a budget that can break"),
    ):
        assert old in build
        file.write_text(head + build.replace(old, new) + rest, "utf-8")
        with pytest.raises(StoryError, match=said) as caught:
            load_stage_file(file)
        assert whole.splitlines()[caught.value.line - 1].startswith("scar:")


@pytest.mark.parametrize(
    ("hall", "metric", "said"),
    [
        ("abyss", "throughput_ratio", "a 'hold' trial does not measure 'throughput_ratio'.*serve"),
        ("abyss", "tpot_ratio", "a 'hold' trial does not measure 'tpot_ratio'.*paired, serve"),
        ("gate", "memory_use", "a 'timeline' trial does not measure 'memory_use'"),
        ("paging", "decode_throughput", "a 'serve' trial does not measure 'decode_throughput'"),
    ],
)
def test_a_crown_that_this_trial_never_measures_is_refused(
    root: Path, hall: str, metric: str, said: str
) -> None:
    file = root / "stages" / f"{hall}.yaml"
    whole = file.read_text("utf-8")
    crown = f"crowns:\n  - {{name: time, metric: {metric}, op: '>=', bound: 1}}\n"
    whole = re.sub(r"crowns:\n(?:  - .*\n)+", crown, whole) if "crowns:" in whole else whole + crown
    file.write_text(whole, "utf-8")
    with pytest.raises(StoryError, match=said):
        load_stage_file(file)
