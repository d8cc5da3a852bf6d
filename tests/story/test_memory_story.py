"""The Abyss and the Array, told for every play that can come: nothing missing, nothing twice."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
from draft_plays import plaza_plays, sampled_plays
from weight_plays import BEFORE as ASKED
from weight_plays import cliff_plays, furnace_plays

from story.fact_table import TABLE
from story.facts import FactValue, derive, quote, tell
from story.lint_words import cells
from story.loader import load_stages, load_text
from story.schema import LANGUAGES, Language, Line, SceneName

Play = dict[str, FactValue]

BEFORE: Play = {
    "player": "Ada", "debt": 7, "attempts": 1, "hints_taken": 0, "device": "a processor",
    "model": "SmolLM2-135M-Instruct", "weights_mb": 269.0, "kv_kb_token": 23.0,
    "bandwidth_gb": 22.0, "flops_t": 2.3, "floor_ms": 12.2, "batch": 8, "precision": "bfloat16",
    "prompt": 1024, "output": 8, "kv_bits": "full", "layout": "contiguous", "block_size": 16,
    "sharing": "off", "requests": 8, "system_tokens": 0, "scar": False, "met": False, "floods": 0,
    "vessel_mb": 511.0, "predicted_mb": 507.0, "slots": 7, "heads": 9, "kv_heads": 3,
    "gqa_factor": 3,
}  # fmt: skip
TRIAL: Play = {
    "debt_before": 5, "bound_by": "capacity", "memory_ratio": 1.1, "memory_mb": 433.0,
    "live_tokens": 8248, "held_mb": 98.0, "vessel_percent": 84.8, "kv_request_mb": 47.2,
}  # fmt: skip
RUNS: Play = {
    "bound_share": 0.7, "decode_bound": "bandwidth", "prefill_bound": "compute", "kl": 0.0013,
    "top1": 0.976, "prefill_tokens_s": 1670.0, "decode_tokens_s": 310.0,
    "prefill_ms_token": 0.6, "decode_ms_token": 17.0, "decode_share_percent": 10.0,
    "prefill_share_percent": 89.0, "decode_cost_ratio": 28.0, "prefill_ceiling_percent": 60.0,
    "decode_ceiling_percent": 35.0,
}  # fmt: skip
SERVED: Play = {
    "memory_use_percent": 96.9, "reference_use_percent": 45.4, "throughput_ratio": 1.62,
    "throughput_tokens_s": 132.0, "ttft_ratio": 0.62, "tpot_ratio": 1.2, "hit_percent": 30.4,
    "preemptions": 0, "recomputed_tokens": 0, "copies": 3, "most_running": 7,
    "reference_running": 3, "waste_tokens": 7.5,
}  # fmt: skip
FLOOD: Play = {
    "flood_running": 7, "flood_asked_mb": 23.8, "flood_over_mb": 14.5, "flood_fits": 7,
    "live_tokens": 7175, "held_mb": 165.0,
}  # fmt: skip


def guessed(guess: float, truth: float, close: float) -> Play:
    factor = max(guess / truth, truth / guess)
    return {
        "guess": guess, "guess_word": f"{guess:g}", "truth": truth, "truth_word": f"{truth:g}",
        "guess_factor": factor, "guess_close": factor <= close,
    }  # fmt: skip


def abyss_plays(verdict: str) -> Iterator[Play]:
    broken = ("live_tokens", "kl") if verdict == "fail" else ("",)
    for guess, bits, attempts, hints, goal, share, change, scar in itertools.product(
        (1.0, 40.0, 47.2, 90.0, 700.0, 9_000.0), ("full", "16", "8", "4"), (1, 5), (0, 3), broken,
        (40.0, 97.0), (-2, 0, 3), (False, True),
    ):  # fmt: skip
        yield {
            **BEFORE, **TRIAL, **RUNS, **guessed(guess, 47.2, 1.5), "kv_bits": bits,
            "attempts": attempts, "hints_taken": hints, "broken_goal": goal,
            "vessel_percent": share, "debt_change": change, "scar": scar, "verdict": verdict,
            "met": verdict == "pass", "floods": int(scar), "flooded": False,
        }  # fmt: skip


def floods() -> Iterator[Play]:
    for guess, met, number, over, held, change, attempts in itertools.product(
        (1.0, 40.0, 9_000.0), (False, True), (1, 2, 9), (0.2, 14.5), (165.0, 300.0), (-1, 0, 4),
        (1, 6),
    ):  # fmt: skip
        yield {
            **BEFORE, **TRIAL, **FLOOD, **guessed(guess, 47.2, 1.5), "met": met, "scar": True,
            "floods": number, "flood_over_mb": over, "held_mb": held, "debt_change": change,
            "attempts": attempts, "broken_goal": "live_tokens", "verdict": "fail", "flooded": True,
        }  # fmt: skip


def array_plays(verdict: str) -> Iterator[Play]:
    broken = ("memory_use", "throughput_ratio") if verdict == "fail" else ("",)
    for guess, layout, size, sharing, batch, back, goal, attempts, change in itertools.product(
        (1.0, 40.0, 45.4, 70.0, 100.0), ("contiguous", "paged"), (1, 16, 256), ("on", "off"),
        (4, 16), (0, 5), broken, (1, 5), (-2, 3),
    ):  # fmt: skip
        if layout == "contiguous" and (sharing == "on" or verdict == "pass" or back):
            continue  # refused before it runs, or never so
        yield {
            **BEFORE, **TRIAL, **RUNS, **SERVED, **guessed(guess, 45.4, 1.25), "layout": layout,
            "block_size": size, "sharing": sharing, "batch": batch, "preemptions": back,
            "broken_goal": goal, "attempts": attempts, "debt_change": change, "verdict": verdict,
            "requests": 16, "system_tokens": 96, "vessel_mb": 387.0, "slots": 3, "flooded": False,
        }  # fmt: skip


def told(stage: str, scene: SceneName, play: Play, language: Language = "en") -> tuple[Line, ...]:
    return tell(load_text(stage, language).scenes[scene], play)


def ids(lines: tuple[Line, ...], *endings: str) -> list[str]:
    return [line.id for line in lines if line.id.rsplit(".", 1)[-1] in endings]


VERDICTS: tuple[tuple[str, SceneName], ...] = (("pass", "passed"), ("fail", "failed"))


@pytest.mark.parametrize(("verdict", "scene"), VERDICTS)
def test_every_guess_is_answered_once_by_the_wall(verdict: str, scene: SceneName) -> None:
    for stage, plays in (("abyss", abyss_plays), ("paging", array_plays)):
        for play in plays(verdict):
            lines = told(stage, scene, play)
            answers = ids(lines, "close", "off", "far", "wild")
            assert len(answers) == 1, (stage, play)
            (line,) = [one for one in lines if one.id == answers[0]]
            assert line.who == "wall" and f"{play['truth']:g}" in line.text


def test_a_failed_abyss_says_once_which_law_broke_and_how_far() -> None:
    for play in abyss_plays("fail"):
        lines = told("abyss", "failed", play)
        said = [line for line in lines if line.id in ids(lines, "few", "few_narrow", "four",
                                                         "spoiled")]  # fmt: skip
        assert len(said) == 1 and re.search(r"\d", said[0].text), play


def test_a_failed_array_says_once_why() -> None:
    reasons = ("contiguous", "coarse", "tails", "few", "thrash", "ledger_heavy", "apart", "short")
    for play in array_plays("fail"):
        if play["layout"] == "contiguous" and play["broken_goal"] == "throughput_ratio":
            continue  # the contiguous layout breaks its use of memory first
        assert len(ids(told("paging", "failed", play), *reasons)) == 1, play


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_flood_is_told_with_its_own_figures(language: Language) -> None:
    for play in floods():
        lines = told("abyss", "scar", play, language)
        spoken = " ".join(line.text for line in lines)
        over = f"{play['flood_over_mb']:.3g}"
        for figure in ("7", "23.8", over):
            assert figure in spoken, play
        assert {"narrator", "elder", "wall"} <= {line.who for line in lines}


def test_only_the_first_flood_is_told_as_the_first() -> None:
    for play in floods():
        lines = told("abyss", "scar", play)
        first = ids(lines, "silence", "account", "keep")
        again = ids(lines, "again", "account_again")
        assert (len(first), len(again)) == ((3, 0) if play["floods"] == 1 else (0, 2)), play
        assert bool(ids(lines, "early")) is not play["met"]
        assert len(ids(lines, "heavier", "lighter")) == 1
        assert len(ids(lines, "close", "off")) == 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_descent_dares_permits_and_says_how(language: Language) -> None:
    for play in abyss_plays("pass"):
        if play["scar"]:
            continue
        lines = told("abyss", "descent", {**play, "met": True}, language)
        assert {"dare", "permit"} <= {line.id.rsplit(".", 1)[-1] for line in lines}
        assert lines[0].who == "narrator"


def test_a_finished_abyss_is_told_calm_or_marked_but_not_both() -> None:
    for play in abyss_plays("pass"):
        ends = ids(told("abyss", "passed", play), "too_calm", "under_mark")
        assert ends == ["abyss.passed.under_mark" if play["scar"] else "abyss.passed.too_calm"]


@pytest.mark.parametrize("stage", ["abyss", "paging"])
def test_an_insight_has_numbers_in_it_and_ends_with_the_way_on(stage: str) -> None:
    plays = [*floods()] + [*abyss_plays("pass")] if stage == "abyss" else [*array_plays("pass")]
    for play in plays:
        lines = told(stage, "insight", {**play, "scar": stage == "abyss", "met": True})
        assert 5 <= len(lines) <= 10, play
        assert sum(bool(re.search(r"\d", line.text)) for line in lines) >= 3
        assert lines[-1].who == "narrator"


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_hole_and_no_overflow_in_any_play(language: Language) -> None:
    scenes = [("abyss", "scar", play) for play in floods()]
    for verdict, scene in VERDICTS:
        scenes += [("abyss", scene, play) for play in abyss_plays(verdict)]
        scenes += [("paging", scene, play) for play in array_plays(verdict)]
    texts: set[str] = set()
    for stage, scene, play in scenes[::5]:
        for name in (scene, "arrival", "forge", "insight"):
            for line in told(stage, name, play, language):
                texts |= {line.text, *(reply.answer for reply in line.choices)}
    assert len(texts) > 60
    for text in texts:
        assert "{" not in text and "}" not in text
        assert cells(text) <= 216


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("stage", ["abyss", "paging", "furnace", "precision"])
def test_a_hall_can_be_entered_before_the_machine_is_known(stage: str, language: Language) -> None:
    always = {fact.name for fact in TABLE if fact.known == "always"}
    bare = {name: value for name, value in (ASKED | BEFORE).items() if name in always}
    lines = tell(load_text(stage, language).scenes["arrival"], bare)
    assert len(lines) >= 7 and lines[-1].who == "wall"  # the bet is always offered


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_undecided_trial_is_told_by_elder_and_wall(language: Language) -> None:
    for verdict, stage in itertools.product(("inconclusive", "invalid"), ("abyss", "paging")):
        lines = told(stage, "undecided", {**BEFORE, "verdict": verdict}, language)
        assert {line.who for line in lines} == {"elder", "wall"} and len(lines) == 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_formulas_show_the_players_own_numbers(language: Language) -> None:
    flood = next(floods())
    shown = quote(load_text("abyss", language).formula, flood)
    # 2 x 30 layers x 3 heads x 64 x 2 bytes x 2,048 tokens; three times that without GQA
    assert shown is not None and "47.2 MB" in shown and "142 MB" in shown
    play = next(array_plays("pass"))
    shown = quote(load_text("paging", language).formula, play)
    assert shown is not None and "45" in shown and "97" in shown


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_tales_are_put_right(language: Language) -> None:
    """LLaMA-2 70B, 2,048 tokens: 2 x 80 x 2,048 x heads x 128 x 2 bytes, of 64 heads and of 8."""
    full, grouped = (2 * 80 * 2048 * heads * 128 * 2 / 1e9 for heads in (64, 8))
    assert (f"{full:.1f}", f"{grouped:.2f}", f"{32 * grouped:.1f}") == ("5.4", "0.67", "21.5")
    correction = load_text("abyss", language).correction
    assert all(figure in correction for figure in ("5.4", "0.67", "172", "21.5"))
    waste = 100 * (1 - 50 / 4000)
    told_waste = load_text("paging", language).correction + "".join(
        line.text for line in load_text("abyss", language).scenes["insight"]
    )
    assert f"{waste:.2f}" in told_waste
    assert "96" in load_text("paging", language).published


def test_the_plays_hold_every_fact_their_kind_of_trial_gives() -> None:
    """A fact missing here would leave its lines untested."""
    known = set(derive(next(abyss_plays("pass")))) | set(derive(next(floods())))
    known |= set(derive(next(array_plays("pass"))))
    known |= set(derive(next(one for one in furnace_plays("pass") if "truth" in one)))
    known |= set(derive(next(cliff_plays("pass"))))
    for play in (next(plaza_plays("pass")), next(sampled_plays())):
        known |= set(derive(play))
    assert {fact.name for fact in TABLE} - known <= {"decode_throughput_ratio"}


def test_both_halls_are_open_and_one_demands_a_scar() -> None:
    halls = {stage.id: stage for stage in load_stages()}
    assert halls["abyss"].open and halls["abyss"].scar == "flood"
    assert halls["paging"].open and halls["paging"].scar is None
