"""Facts of memory against figures worked by hand for the default model."""

from __future__ import annotations

import msgspec
import pytest
from canned_drafts import FAIR, make_drafted
from canned_memory import FULL_TOKEN, make_hold
from canned_serving import make_serve
from canned_trials import CAPABILITIES, MACHINE, MODEL, Case
from canned_weights import make_pressed
from sealed_records import a_climb

from engine.draft_report import Drawn
from game.rules.facts import stage_facts, trial_facts
from game.rules.judge import judge
from game.rules.progress import standing
from story.facts import FACTS, FactValue, derive
from story.loader import load_stages

STAGES = {stage.id: stage for stage in load_stages()}
EMPTY = standing((), load_stages())
Facts = dict[str, FactValue]
KINDS = {"number": (int, float), "text": (str,), "bool": (bool,)}


def before(stage: str, **build: int | str) -> Facts:
    return stage_facts(
        STAGES[stage], build, EMPTY, "Lin", 0, CAPABILITIES, MODEL, "SmolLM2", MACHINE
    )


def after(stage: str, case: Case) -> Facts:
    """Everything that is known once the canned trial was judged, derived facts included."""
    result = make_hold(case) if stage == "abyss" else make_serve(case)
    verdict = judge(result, STAGES[stage].goals)
    told = trial_facts(STAGES[stage], None, verdict, result, None, None, 3, 5)
    return derive({**before(stage, **result.spec.build), **told})


def after_pressing(stage: str) -> Facts:
    """The same of weights in fewer bits."""
    result = make_pressed(stage)
    verdict = judge(result, result.spec.bounds)
    told = trial_facts(STAGES[stage], None, verdict, result, None, None, 0, 0)
    return derive({**before(stage, **result.spec.build), **told})


def after_drafting(drawn: Drawn | None = None) -> Facts:
    """The same of a build that drafts."""
    result = make_drafted(drawn=drawn)
    verdict = judge(result, result.spec.bounds)
    told = trial_facts(STAGES["plaza"], None, verdict, result, None, None, 0, 0)
    return derive({**before("plaza", **result.spec.build), **told})


def test_drafts_are_told_as_they_were_counted() -> None:
    """82, 67, 55 and 45 of a hundred stood: 249 of 400; 2.2 steps' time a step, of it one drafting;
    24 of 48, 33 of 40, 34 of 36 by kind."""
    told = after_drafting()
    assert told["draft_kind"] == "self4" and told["draft_length"] == 4
    assert (
        told["acceptance_percent"] == pytest.approx(62.25, abs=0.06) and told["step_tokens"] == 3.49
    )
    assert told["even_tokens"] == pytest.approx(2.2, rel=0.01)
    assert told["even_percent"] == pytest.approx(100 * 1.2 / 4, rel=0.02)
    assert told["draft_share_percent"] == pytest.approx(100 / 2.2, rel=0.01)
    assert (told["story_percent"], told["code_percent"], told["list_percent"]) == (50, 82.5, 94.4)
    assert told["best_kind"] == "list" and told["worst_kind"] == "story"
    assert told["lossless"] is True and told["compared"] == 8 and told["near_ties"] == 0
    assert 15 < float(told["draft_cost_percent"]) < 19  # four bits of thirty-two, and scales
    bare = before("plaza", **{"draft.kind": "trained"})
    assert "draft_cost_percent" not in bare  # no head ships for the canned model


def test_the_build_says_how_its_cache_is_kept() -> None:
    told = stage_facts(STAGES["paging"], {"cache.layout": "paged"}, EMPTY)
    assert told["layout"] == "paged" and told["block_size"] == 16 and told["sharing"] == "off"
    assert told["requests"] == 12 and told["system_tokens"] == 150 and told["kv_bits"] == "full"
    narrow = stage_facts(STAGES["abyss"], {"cache.bits": 8, "schedule.batch": 5}, EMPTY)
    assert narrow["kv_bits"] == "8" and narrow["requests"] == 5 and narrow["scar"] is False
    assert not {"vessel_mb", "slots", "heads"} & set(narrow)  # the model is not met yet


def test_the_vessel_and_the_model_by_formula() -> None:
    told = before("abyss")
    matrices = 30 * 3_538_944 + 49_152 * 576
    assert told["vessel_mb"] == pytest.approx(matrices * 4 * 0.95 / 1e6, rel=0.005)
    assert (told["heads"], told["kv_heads"], told["gqa_factor"]) == (9, 3, 3)
    assert 350 < float(told["predicted_mb"]) < 380  # 326 of weights, 24 of KV, working memory
    assert told["slots"] == 7  # (511 - 326 - some 14) / (1,032 x 23,040 bytes) = 7.2
    assert before("paging")["slots"] == 2  # (366 - 326 - some 7) / (496 x 23,040 bytes) = 2.9


@pytest.mark.parametrize(("bits", "token"), [(0, 23.04), (16, 23.04), (8, 11.88), (4, 6.48)])
def test_a_cached_token_costs_what_its_width_says(bits: int, token: float) -> None:
    """2 x 30 layers x 3 heads x (64 numbers and their scale and least value)."""
    values = {0: 128, 16: 128, 8: 64 + 2, 4: 32 + 4}[bits]
    assert 2 * 30 * 3 * values / 1e3 == pytest.approx(token)
    assert before("abyss", **{"cache.bits": bits})["kv_kb_token"] == pytest.approx(token, rel=5e-3)


def test_a_build_that_the_vessel_can_never_hold_has_no_price_and_keeps_the_rest() -> None:
    told = before("abyss", **{"run.precision": "float32"})  # 651 MB of weights
    assert "predicted_mb" not in told and "slots" not in told
    assert told["vessel_mb"] == 511.0 and told["heads"] == 9


def test_a_hall_without_a_budget_has_no_vessel() -> None:
    told = before("pendulum")
    assert "vessel_mb" not in told and "slots" not in told and "predicted_mb" in told


def test_a_flood_is_told_in_its_own_figures() -> None:
    told = after("abyss", "flooded")
    asked, free = 1032 * FULL_TOKEN, 9_320_281
    assert told["flooded"] is True and told["flood_running"] == 7 and told["flood_fits"] == 7
    assert told["flood_asked_mb"] == pytest.approx(asked / 1e6, rel=5e-3)
    assert told["flood_over_mb"] == pytest.approx((asked - free) / 1e6, rel=5e-3)
    assert told["live_tokens"] == 7175 and isinstance(told["live_tokens"], int)
    assert told["held_mb"] == pytest.approx(7175 * FULL_TOKEN / 1e6, rel=5e-3)
    assert told["kv_over_weights"] is False  # 165 MB beside 269
    assert not {"kl", "top1", "decode_tokens_s"} & set(told)
    assert told["broken_goal"] == "live_tokens" and told["bound_by"] == "capacity"


def test_what_was_held_is_told_to_the_last_token() -> None:
    told = after("abyss", "pass")
    assert told["live_tokens"] == 8248 and told["flooded"] is False
    assert told["kv_request_mb"] == pytest.approx(47.2)
    assert told["kv_request_full_mb"] == pytest.approx(3 * 47.2)
    assert told["vessel_percent"] == pytest.approx(84.8) and told["memory_mb"] == 433.0
    assert not {name for name in told if name.startswith("flood_")}


def test_the_scar_and_its_number_come_from_the_ledger() -> None:
    reached = standing(a_climb("gate", "pendulum", "abyss"), load_stages())
    told = stage_facts(STAGES["abyss"], {}, reached)
    assert (told["scar"], told["met"], told["floods"]) == (True, True, 1)
    told = stage_facts(STAGES["paging"], {}, reached)
    assert (told["scar"], told["met"], told["floods"]) == (False, False, 0)


def test_served_loads_are_told_as_they_were_counted() -> None:
    told, pair = after("paging", "pass"), make_serve("pass").load_pairs[0]
    use = 100 * pair.candidate.held_tokens / pair.candidate.reserved_tokens
    assert told["memory_use_percent"] == pytest.approx(use, rel=5e-3)
    assert (told["most_running"], told["reference_running"]) == (
        pair.candidate.most_running,
        pair.reference.most_running,
    )
    empty = pair.candidate.reserved_tokens - pair.candidate.held_tokens
    assert told["waste_tokens"] == pytest.approx(empty / pair.candidate.mean_running, rel=5e-3)
    hit = 100 * pair.candidate.cached_tokens / pair.candidate.prompt_tokens
    assert told["hit_percent"] == pytest.approx(hit, rel=5e-3)
    assert (told["preemptions"], told["recomputed_tokens"]) == (0, 0)
    assert float(told["throughput_ratio"]) > 1.5 > 1 > float(told["ttft_ratio"])
    assert told["reference_use_percent"] == after("paging", "fail")["memory_use_percent"]


@pytest.mark.parametrize(
    ("stage", "case"),
    [("abyss", "pass"), ("abyss", "fail"), ("abyss", "flooded"), ("paging", "pass"),
     ("paging", "fail"), ("paging", "straddle")],
)  # fmt: skip
def test_every_fact_is_of_its_kind_and_of_its_trial(stage: str, case: Case) -> None:
    told = after(stage, case)
    for name, value in told.items():
        fact = FACTS[name]
        assert isinstance(value, KINDS[fact.kind]), name
        assert isinstance(value, bool) == (fact.kind == "bool"), name
        assert not fact.words or value in fact.words, name
        assert fact.of != "flood" or case == "flooded", name
        assert fact.of != "runs" or case != "flooded", name
        if fact.kind == "number":
            assert fact.low <= float(value) <= fact.high, name


def test_every_fact_of_memory_comes_of_some_trial() -> None:
    """A fact that no trial gives would leave its lines untold for ever."""
    halls = [after("abyss", "flooded"), after("abyss", "pass"), after("paging", "pass")]
    given = set().union(*halls)
    guessed = {"guess", "guess_word", "truth", "truth_word", "guess_factor", "guess_close",
               "guess_over"}  # fmt: skip
    paired = {"decode_throughput_ratio", "build_tpot_ms"}  # the pendulum's
    pressed = set(after_pressing("furnace")) | set(after_pressing("precision"))
    unshown = {"shown_by"}  # of a machine that cannot show a lesson
    drafted = set(after_drafting()) | set(after_drafting(FAIR))
    assert set(FACTS) - given - pressed - drafted <= guessed | paired | unshown


def test_a_ledger_that_was_not_kept_leaves_its_facts_out() -> None:
    result = msgspec.structs.replace(make_hold("pass"), ledger=None)
    verdict = judge(result, STAGES["abyss"].goals)
    told = trial_facts(STAGES["abyss"], None, verdict, result, None, None, 0, 0)
    assert "held_mb" not in told and "vessel_percent" not in told
    assert told["live_tokens"] == 8248  # counted by the runs themselves
