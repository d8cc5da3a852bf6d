"""The two open halls, told for every play that can come: nothing missing, nothing said twice."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest

from story.facts import FactValue, quote, tell
from story.lint_words import cells
from story.loader import load_stages, load_text
from story.schema import LANGUAGES, Language, Line, SceneName

NUMBERS: dict[str, FactValue] = {
    "player": "Ada", "debt": 7, "attempts": 1, "hints_taken": 0, "device": "a processor",
    "model": "SmolLM2-135M-Instruct", "weights_mb": 538.0, "kv_kb_token": 46.1,
    "bandwidth_gb": 22.0, "flops_t": 0.37, "floor_ms": 24.5, "batch": 1,
    "precision": "float32", "prompt": 128, "output": 24,
}  # fmt: skip
TRIAL: dict[str, FactValue] = {
    "debt_before": 5, "debt_change": 2, "bound_share": 0.7, "prefill_ms_token": 1.12,
    "decode_ms_token": 29.1, "prefill_tokens_s": 900.0, "decode_tokens_s": 34.0,
    "decode_share_percent": 86.0, "prefill_share_percent": 12.0, "decode_cost_ratio": 26.0,
    "decode_throughput_ratio": 6.9, "tpot_ratio": 1.3, "memory_ratio": 0.6, "kl": 0.0013,
    "top1": 0.981, "prefill_ceiling_percent": 70.0, "decode_ceiling_percent": 84.0,
    "bound_by": "bandwidth", "decode_bound": "bandwidth", "prefill_bound": "compute",
    "broken_goal": "",
}  # fmt: skip
CHOICES = ("compute", "bandwidth", "capacity", "launch overhead")
Play = dict[str, FactValue]


def gate_plays() -> Iterator[Play]:
    truths = (*CHOICES, "none")
    for guess, truth, share, attempts, change in itertools.product(
        CHOICES, truths, (12.0, 60.0, 93.0), (1, 4), (-2, 0, 5)
    ):
        yield {
            **NUMBERS, **TRIAL, "attempts": attempts, "debt_change": change, "guess": guess,
            "guess_word": guess, "truth": truth, "truth_word": truth, "verdict": "pass",
            "guess_close": guess == truth, "decode_share_percent": share,
            "decode_bound": truth if truth in CHOICES else "none",
        }  # fmt: skip


def pendulum_plays(verdict: str) -> Iterator[Play]:
    broken = ("decode_throughput_ratio", "tpot_ratio") if verdict == "fail" else ("",)
    for guess, batch, precision, attempts, hints, goal, bound, kl, ratio in itertools.product(
        (1.0, 9.0, 20.0, 26.0, 39.0, 60.0, 300.0), (1, 8, 64), ("float32", "bfloat16"),
        (1, 5), (0, 3), broken, ("bandwidth", "compute", "launch overhead"), (0.001, 0.02),
        (0.9, 1.55, 3.0),
    ):  # fmt: skip
        factor = max(guess / 26.0, 26.0 / guess)
        yield {
            **NUMBERS, **TRIAL, "batch": batch, "precision": precision, "attempts": attempts,
            "hints_taken": hints, "broken_goal": goal, "decode_bound": bound, "kl": kl,
            "tpot_ratio": ratio, "guess": guess, "guess_word": f"{guess:g}", "truth": 26.0,
            "truth_word": "26", "guess_factor": factor, "guess_close": factor <= 1.5,
            "verdict": verdict,
        }  # fmt: skip


def told(stage: str, scene: SceneName, play: Play, language: Language = "en") -> tuple[Line, ...]:
    return tell(load_text(stage, language).scenes[scene], play)


def walls_word_on_the_guess(lines: tuple[Line, ...]) -> list[str]:
    names = re.compile(r"\.(right|wrong|close|off|far|wild)")
    return [line.id for line in lines if line.who == "wall" and names.search(line.id)]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("stage", ["gate", "pendulum"])
def test_scenes_have_the_length_a_hall_can_bear(stage: str, language: Language) -> None:
    scenes = load_text(stage, language).scenes
    assert 8 <= len(scenes["arrival"]) <= 14
    assert 2 <= len(scenes["forge"]) <= 4
    assert any(line.choices for lines in scenes.values() for line in lines)


def test_an_insight_is_three_to_five_lines_long_and_has_numbers_in_it() -> None:
    plays = [("gate", play) for play in gate_plays()]
    plays += [("pendulum", play) for play in pendulum_plays("pass")]
    for stage, play in plays:
        lines = told(stage, "insight", play)
        assert 3 <= len(lines) <= 5, (stage, play)
        assert sum(bool(re.search(r"\d", line.text)) for line in lines) >= 2


def test_the_scales_tell_a_full_cart_from_a_light_one() -> None:
    """Default model, bf16, 152 tokens a request: 3.5 MB at batch 1, 224 MB at 64, of 269 MB."""
    bf16 = {"precision": "bfloat16", "weights_mb": 269.0, "kv_kb_token": 23.04}
    for batch, line_id, shown in ((1, "scale", "3.5 MB"), (64, "scale_full", "224 MB")):
        lines = told("pendulum", "insight", {**NUMBERS, **TRIAL, **bf16, "batch": batch})
        (scale,) = [line for line in lines if ".scale" in line.id]
        assert scale.id == f"pendulum.insight.{line_id}" and shown in scale.text


def test_the_gate_answers_every_guess_with_one_word_of_the_wall() -> None:
    for play in gate_plays():
        lines = told("gate", "passed", play)
        assert len(walls_word_on_the_guess(lines)) == 1, play
        assert sum(line.id.startswith("gate.passed.truth_") for line in lines) == 1
        assert sum(line.id.startswith("gate.passed.ribbon_") for line in lines) == 1
        assert sum(line.id.startswith("gate.passed.debt_") for line in lines) <= 1


@pytest.mark.parametrize(("verdict", "scene"), [("pass", "passed"), ("fail", "failed")])
def test_the_pendulum_answers_every_guess_with_one_word_of_the_wall(
    verdict: str, scene: SceneName
) -> None:
    for play in pendulum_plays(verdict):
        lines = told("pendulum", scene, play)
        assert len(walls_word_on_the_guess(lines)) == 1, play


def test_a_failed_pendulum_says_once_which_goal_broke_and_how_far() -> None:
    reasons = re.compile(
        r"pendulum\.failed\.(alone|few|crawl|crawl_light|late|late_light|late_compute)$"
    )
    for play in pendulum_plays("fail"):
        said = [line for line in told("pendulum", "failed", play) if reasons.search(line.id)]
        assert len(said) == 1, play
        assert re.search(r"\d", said[0].text)


def test_the_wall_quotes_the_wrong_guess_and_the_measured_number() -> None:
    for play in pendulum_plays("pass"):
        lines = {line.id: line for line in told("pendulum", "passed", play)}
        (name,) = walls_word_on_the_guess(tuple(lines.values()))
        assert f"{play['guess']:g}" in lines[name].text and "26" in lines[name].text


def test_the_undecided_scene_knows_its_two_verdicts() -> None:
    for verdict in ("inconclusive", "invalid"):
        for stage in ("gate", "pendulum"):
            lines = told(stage, "undecided", {**NUMBERS, "verdict": verdict})
            assert {line.who for line in lines} == {"elder", "wall"}
            assert len(lines) == 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_hole_and_no_overflow_in_any_play(language: Language) -> None:
    plays = [("gate", "passed", play) for play in gate_plays()]
    plays += [("pendulum", "passed", play) for play in pendulum_plays("pass")]
    plays += [("pendulum", "failed", play) for play in pendulum_plays("fail")]
    texts: set[str] = set()
    for stage, scene, play in plays[::7]:
        for name in (scene, "arrival", "forge", "insight"):
            for line in told(stage, name, play, language):  # type: ignore[arg-type]
                texts |= {line.text, *(reply.answer for reply in line.choices)}
    assert texts
    for text in texts:
        assert "{" not in text and "}" not in text
        assert cells(text) <= 216


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_hall_can_be_entered_before_the_machine_is_known(language: Language) -> None:
    bare = {name: NUMBERS[name] for name in ("player", "debt", "attempts", "hints_taken")}
    build = {name: NUMBERS[name] for name in ("batch", "precision", "prompt", "output")}
    for stage in ("gate", "pendulum"):
        lines = tell(load_text(stage, language).scenes["arrival"], {**bare, **build})
        assert len(lines) >= 8
        assert lines[-1].who == "wall"  # the bet is always offered


@pytest.mark.parametrize("language", LANGUAGES)
def test_formulas_show_the_players_own_numbers(language: Language) -> None:
    play = next(pendulum_plays("pass")) | {"batch": 8, "precision": "bfloat16", "flops_t": 2.3}
    shown = quote(load_text("pendulum", language).formula, play)
    assert shown is not None
    assert "2 x 8 / 2 = 8.0" in shown and "2.30 TFLOP/s / 22.0 GB/s = 105 FLOP/B" in shown
    shown = quote(load_text("gate", language).formula, play)
    assert shown is not None and "538 MB / 22.0 GB/s = 24.5" in shown


def test_the_tale_is_put_right_where_it_was_wrong() -> None:
    """KV cache of the default model in bf16: 2 x 30 layers x 3 heads x 64 x 2 bytes a token."""
    kv, weights = 2 * 30 * 3 * 64 * 2, 269e6
    for language in LANGUAGES:
        correction = load_text("pendulum", language).correction
        assert f"{kv / 1e3:.0f} KB" in correction and f"{weights / 1e6:.0f} MB" in correction
        told_tokens = re.search(r"11,700", correction)
        assert told_tokens and abs(weights / kv - 11_700) < 100


def test_every_line_of_one_language_has_its_fellow() -> None:
    for stage in load_stages():
        ids = [
            [line.id for lines in load_text(stage.id, one).scenes.values() for line in lines]
            for one in LANGUAGES
        ]
        assert ids[0] == ids[1] and len(set(ids[0])) == len(ids[0])
