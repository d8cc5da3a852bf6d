"""Weights in fewer bits as a trial's report tells them: lines for everyone, keys for programs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from canned_trials import make_result
from canned_weights import BABBLE, BUILDS, make_pressed
from canned_worker import CannedWorker
from plain_script import play
from sealed_records import a_climb

from engine.domains import Value
from engine.quality_report import Answer
from engine.quantised import Notice
from engine.trial import TrialResult
from game.build_check import spec_of
from game.commands.trial_report import document, verdict_lines
from game.outcome import Outcome
from game.rules.judge import judge
from game.session import Session
from story.loader import load_stages
from story.schema import LANGUAGES, Language

STAGES = {stage.id: stage for stage in load_stages()}
CLIMB = ("gate", "pendulum", "abyss", "furnace", "paging")


def outcome(result: TrialResult, **facts: float | bool) -> Outcome:
    verdict = judge(result, result.spec.bounds)
    return Outcome(result.spec.stage, result.spec.build, verdict, result, None, None, 0, 0,
                   facts=dict(facts))  # fmt: skip


def lines(home: Path, result: TrialResult, language: Language = "en", **facts: float | bool) -> str:
    session = Session.open(home)
    session.speak(language)
    return "\n".join(verdict_lines(session, outcome(result, **facts)))


def test_how_the_weights_were_made_is_told(tmp_path: Path) -> None:
    told = lines(tmp_path, make_pressed("furnace", "pass"))
    assert "weights: AWQ, 4 bits; 5.6" in told  # 4 bits, their scales, the embedding in 8
    assert "quantising took 21.5 s" in told and "calibration text read: 4,096 tokens" in told
    assert "beyond rounding: 30 of 30" in told
    assert "largest error: 17 %, in layer 30, matrix down" in told
    assert "40 asked; the full model knows 30, and this build still answers 27" in told
    assert "64 tokens at a time: 0.11, 0.09, 0.072" in told


def test_rounding_reads_nothing_and_changes_nothing_beyond_itself(tmp_path: Path) -> None:
    told = lines(tmp_path, make_pressed("furnace", "fallen"))
    assert "weights: RTN, 3 bits" in told and "came from disk" in told
    assert "calibration text" not in told and "beyond rounding" not in told


def test_answers_stand_one_under_the_other_with_the_token_where_they_part(tmp_path: Path) -> None:
    told = lines(tmp_path, make_pressed("precision", "pass")).splitlines()
    at = next(n for n, line in enumerate(told) if "asked: What is the capital" in line)
    assert [line.strip() for line in told[at : at + 8]] == [
        "asked: What is the capital of France?",
        "the full model: Paris.",
        "this build: Paris.",
        "the same, token for token",
        "asked: Why is the sky blue?",
        "the full model: Because air scatters blue light.",
        "this build: Because the air scatters light.",
        "they part at token 2",
    ]
    assert any("8 bits, KL 0.005; 4 bits, KL 0.23; 3 bits, KL 1.63" in line for line in told)


@pytest.mark.parametrize(("falls", "said"), [(1, "the scar that the hall"), (2, "stands beside")])
def test_a_fall_says_what_it_is_to_the_hall(tmp_path: Path, falls: int, said: str) -> None:
    told = lines(tmp_path, make_pressed("precision", "fallen"), scar=True, falls=falls)
    assert "The meaning is gone: KL 1.63" in told and said in told and BABBLE in told


def test_what_a_model_says_is_never_more_than_text(tmp_path: Path) -> None:
    result = make_pressed("precision", "pass")
    assert result.quality is not None
    foul = Answer("a?", "\x1b[2J[red]yes\nno", "\u202eyes", 0)
    quality = msgspec.structs.replace(result.quality, answers=(foul,))
    told = lines(tmp_path, msgspec.structs.replace(result, quality=quality))
    assert "[red]yes no" in told and "\x1b" not in told and "\u202e" not in told


DETAILS = {
    "bits": "4", "matrices": "30", "form": "packed", "tokens": "504", "width": "1536",
    "changed": "2", "layers": "30",
}  # fmt: skip
"""Of every notice at once."""


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("stage", ["furnace", "precision"])
def test_every_line_has_its_words(tmp_path: Path, stage: str, language: Language) -> None:
    result = make_pressed(stage, "pass")
    assert result.quantised is not None
    notices = tuple(
        Notice(code, DETAILS)
        for code in ("calibration_short", "method_changed_little", "not_monotone", "slow_form")
    )
    made = msgspec.structs.replace(result.quantised, notices=notices, bits=0)
    told = lines(tmp_path, msgspec.structs.replace(result, quantised=made), language)
    missing = ("[report.", "[notice.", "[knob.", "[metric.", "[remark.", "{")
    assert not [sign for sign in missing if sign in told]


def test_a_program_reads_the_same_in_keys_of_their_own() -> None:
    told = json.loads(json.dumps(document(outcome(make_pressed("precision", "pass")))))
    made = told["quantised"]
    assert (made["method"], made["bits"], made["layers"]) == ("awq", 4, 30)
    assert made["errors"][0] == {"layer": -1, "name": "embedding", "error": 0.4}
    assert [rung["bits"] for rung in told["ladder"]] == [8, 4, 3, 2]
    assert told["quality"]["probes"] == {"asked": 40, "known": 30, "right": 27}
    assert told["quality"]["answers"][1]["differs"] == 1
    full = document(outcome(make_result("pendulum", "pass")))
    assert full["quantised"] is None and full["ladder"] == []


@pytest.mark.parametrize("stage", ["furnace", "precision", "pendulum"])
def test_a_hall_asks_for_its_questions_and_its_ladder(stage: str) -> None:
    hall = STAGES[stage]
    spec = spec_of(hall, dict(hall.build), 7)
    assert spec.probes is hall.probes is (stage != "pendulum")
    assert spec.ladder == ((8, 4, 3, 2) if stage == "precision" else ())


def settings(case: str) -> list[str]:
    build: dict[str, Value] = BUILDS["precision"][case]  # type: ignore[index]
    return [f"{name}={value}" for name, value in build.items()]


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_wall_is_played_in_lines_of_text(tmp_path: Path, language: Language) -> None:
    worker = CannedWorker(make_result("precision", "pass"), make_result("precision", "fallen"))
    session, script = await play(
        tmp_path, worker, records=a_climb(*CLIMB), language=language, name=[], hall=["7"],
        choice=["3"], forge=[*settings("pass"), "t", *settings("fallen"), "t"],
    )  # fmt: skip
    hall = session.standing().halls["precision"]
    assert hall.state == "passed" and hall.scar == session.records()[-1].digest
    flat = script.flat.replace(" ", "")
    for key in ("report.weights.descending", "plain.scar_left"):
        assert session.text(key).strip().replace(" ", "") in flat
    assert BABBLE in script.flat and "[report." not in script.text
