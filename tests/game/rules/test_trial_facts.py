"""The facts a scene may quote: their names, kinds and figures, against hand-worked numbers."""

from __future__ import annotations

import math

import msgspec
import pytest
from canned_trials import CAPABILITIES, MACHINE, MODEL, make_result, make_verdict

from game.rules.facts import guess_facts, shown, stage_facts, trial_facts
from game.rules.guess import score
from game.rules.progress import standing
from story.facts import FACTS
from story.loader import load_stages, load_text
from story.schema import Stage

STAGES = {stage.id: stage for stage in load_stages()}
EMPTY = standing((), load_stages())
KINDS = {"number": (int, float), "text": (str,), "bool": (bool,)}


def pendulum_facts(case: str = "pass", guess: float = 20.0) -> dict[str, float | str | bool]:
    stage = STAGES["pendulum"]
    verdict, result = make_verdict(case=case), make_result(case=case)  # type: ignore[arg-type]
    assert stage.guess is not None
    scored = score(guess, 19.3, stage.guess)
    return trial_facts(stage, None, verdict, result, scored, 19.3, 7, 4)


def with_machine(stage: Stage, **build: int | str) -> dict[str, float | str | bool]:
    return stage_facts(
        stage, build, EMPTY, "林默", 2, CAPABILITIES, MODEL, "SmolLM2-135M-Instruct", MACHINE
    )


@pytest.mark.parametrize("case", ["pass", "fail", "straddle", "noisy", "fault"])
def test_every_fact_is_one_the_story_knows_and_of_its_kind(case: str) -> None:
    facts = with_machine(STAGES["pendulum"]) | pendulum_facts(case)
    for name, value in facts.items():
        assert isinstance(value, KINDS[FACTS[name].kind]), name
        assert isinstance(value, bool) == (FACTS[name].kind == "bool"), name
        if FACTS[name].words:
            assert value in FACTS[name].words


def test_what_is_always_known_is_there_before_the_machine_is_met() -> None:
    facts = stage_facts(STAGES["gate"], {}, EMPTY)
    derived = {"weight_bytes", "intensity"}  # worked out by the story from the others
    always = {name for name, fact in FACTS.items() if fact.known == "always"}
    assert always - derived <= set(facts)
    assert not {name for name in facts if FACTS[name].known != "always"}


def test_costs_are_the_formulas_of_this_model_and_machine() -> None:
    facts = with_machine(STAGES["pendulum"], **{"run.precision": "bfloat16"})
    weights = (30 * 3_538_944 + 49_152 * 576) * 2
    assert facts["weights_mb"] == pytest.approx(weights / 1e6, rel=0.005) == 269.0
    assert facts["kv_kb_token"] == pytest.approx(23_040 / 1e3, rel=0.005)
    assert facts["floor_ms"] == pytest.approx(weights / 40e9 * 1e3, rel=0.005)
    assert (facts["bandwidth_gb"], facts["flops_t"]) == (40.0, 0.4)
    assert (facts["batch"], facts["prompt"], facts["output"]) == (1, 128, 48)


def test_a_figure_that_cannot_be_had_is_left_out() -> None:
    facts = stage_facts(STAGES["pendulum"], {"run.precision": "int3"}, EMPTY, model=MODEL,
                        machine=MACHINE)  # fmt: skip
    assert "weights_mb" not in facts and "floor_ms" not in facts and "flops_t" not in facts
    verdict = msgspec.structs.replace(make_verdict(), bound_share=math.nan, metrics={})
    told = trial_facts(STAGES["pendulum"], None, verdict, None, None, None, 0, 0)
    assert not {"bound_share", "kl", "truth", "guess", "decode_ms_token"} & set(told)


def test_the_reference_builds_times_are_told_and_not_the_players() -> None:
    facts = pendulum_facts()
    assert facts["decode_ms_token"] == pytest.approx(27.0, rel=0.02)
    assert facts["prefill_ms_token"] == pytest.approx(1.4, rel=0.02)
    assert facts["decode_tokens_s"] == 470.0
    assert (facts["debt_before"], facts["debt_change"]) == (7, -3)


def test_numbers_are_rounded_for_reading() -> None:
    floats = [value for value in pendulum_facts().values() if isinstance(value, float)]
    assert floats and all(float(f"{value:.3g}") == value for value in floats)


def test_a_guess_charged_before_is_still_told_as_close_or_far() -> None:
    stage = STAGES["pendulum"]
    assert stage.guess is not None
    for value, close in ((20.0, True), (100.0, False)):
        carried = msgspec.structs.replace(score(value, 19.3, stage.guess), close=None)
        facts = trial_facts(stage, None, make_verdict(), None, carried, 19.3, 0, 0)
        assert facts["guess_close"] is close


@pytest.mark.parametrize("language", ["zh", "en"])
def test_choices_are_shown_in_the_players_language(language: str) -> None:
    text = load_text("gate", language)  # type: ignore[arg-type]
    facts = guess_facts("bandwidth", text)
    assert facts["guess"] == "bandwidth"
    assert facts["guess_word"] == text.choices["bandwidth"] == shown("bandwidth", text)


@pytest.mark.parametrize(("value", "text"), [(18.0, "18"), (1.55, "1.55"), (1234.5, "1,234")])
def test_numbers_are_shown_short(value: float, text: str) -> None:
    assert shown(value, None) == text


def test_foreign_names_are_cleaned() -> None:
    facts = stage_facts(STAGES["gate"], {}, EMPTY, player="\x1b[31mEve\n\u202e", model_name="a\x07")
    assert facts["player"] == "Eve" and facts["model"] == "a"
