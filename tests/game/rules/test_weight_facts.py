"""Facts of weights in fewer bits against figures worked by hand for the default model."""

from __future__ import annotations

import msgspec
import pytest
from canned_trials import CAPABILITIES, MACHINE, MODEL
from canned_weights import BABBLE, make_pressed

from engine.domains import Value
from engine.quality_report import Answer, Quality
from engine.trial import TrialResult
from game.rules.facts import stage_facts, trial_facts
from game.rules.judge import judge
from game.rules.progress import standing
from game.rules.weight_facts import quotation
from story.facts import FACTS, FactValue
from story.schema import Stage

MATRICES = 30 * 3_538_944 + 49_152 * 576
FURNACE = Stage("furnace", 3, True)
WALL = Stage("precision", 6, True, scar="cliff")
Facts = dict[str, FactValue]


def before(**build: Value) -> Facts:
    positions: dict[str, Value] = {"run.precision": "bfloat16"}
    positions |= {f"weights.{name}": value for name, value in build.items()}
    empty = standing((), ())
    return stage_facts(FURNACE, positions, empty, "Lin", 0, CAPABILITIES, MODEL, "SmolLM2", MACHINE)


def after(result: TrialResult, stage: Stage = FURNACE) -> Facts:
    verdict = judge(result, result.spec.bounds)
    return trial_facts(stage, None, verdict, result, None, None, 0, 0)


def test_what_a_build_asks_for_is_told_as_its_knobs_write_it() -> None:
    told = before()
    assert (told["weight_bits"], told["method"], told["group"]) == ("full", "rtn", "auto")
    assert (told["symmetric"], told["calibration"], told["crossover"]) == ("off", 4096, 32)
    kinds = [told[f"{kind}_bits"] for kind in ("attention", "mlp", "embedding", "edge")]
    assert kinds == ["same", "same", "auto", "same"] and told["cliff_kl"] == 1.0
    told = before(bits=4, group=-1, method="gptq", attention=8, mlp=3, embedding=16, edges=2)
    assert (told["weight_bits"], told["method"], told["group"]) == ("4", "gptq", "row")
    kinds = [told[f"{kind}_bits"] for kind in ("attention", "mlp", "embedding", "edge")]
    assert kinds == ["8", "3", "full", "2"] and before(group=96)["group"] == "96"


def test_bytes_by_formula_are_a_share_of_sixteen_bits() -> None:
    told = before()
    assert told["sixteen_mb"] == pytest.approx(2 * MATRICES / 1e6, rel=0.005) == 269.0
    # A tied head is packed beside the table it is looked up in.
    assert told["share_percent"] == pytest.approx(100 * (1 + 49_152 * 576 / MATRICES), rel=0.005)
    # 4 bits, a scale and a zero of 16 bits a 32 weights; the embedding in 8, a scale a row.
    layers, table = 30 * 3_538_944, 49_152 * 576
    held = layers * (4 + 32 / 32) / 8 + table
    assert before(bits=4, group=32)["share_percent"] == pytest.approx(
        100 * held / (2 * MATRICES), rel=0.01
    )
    fewer = before(bits=4, group=32)["floor_ms"]
    assert float(fewer) == pytest.approx(held / 40e9 * 1e3, rel=0.01)
    assert told["floor_ms"] == pytest.approx(2 * MATRICES / 40e9 * 1e3, rel=0.005)


def test_sizes_wait_for_the_model_and_leave_out_what_cannot_be() -> None:
    assert "sixteen_mb" not in stage_facts(FURNACE, {}, standing((), ()))
    told = before(bits=4, group=100)  # no row of 576 is made of hundreds
    assert "share_percent" not in told and "sixteen_mb" in told


def test_how_the_weights_were_made_is_told_without_the_embedding() -> None:
    told = after(make_pressed("furnace", "pass"))
    assert (told["pressed_seconds"], told["changed_layers"], told["layers"]) == (21.5, 30, 30)
    # The largest error of all is the embedding's; of the layers, the last one's.
    assert (told["worst_layer"], told["worst_matrix"]) == (30, "down")
    assert told["worst_error_percent"] == 17.0 and told["calibration_short"] is False
    assert told["four_bit_gain"] == pytest.approx(2.0, rel=0.01)
    assert float(told["average_bits"]) == pytest.approx(
        float(told["weight_share_percent"]) * 16 / 100, rel=0.01
    )
    short = after(make_pressed(build={"weights.bits": 4, "weights.method": "gptq",
                                      "weights.calibration": 512}))  # fmt: skip
    assert short["calibration_short"] is True


def test_full_weights_have_nothing_to_tell_of_how_they_were_made() -> None:
    told = after(make_pressed("furnace", "fail"))
    made = {"pressed_seconds", "changed_layers", "worst_layer", "worst_matrix", "four_bit_gain"}
    assert not made & set(told) and "rung3_kl" not in told and "breaking_bits" not in told
    assert told["calibration_short"] is False and told["fallen"] is False
    assert told["average_bits"] == pytest.approx(19.4, abs=0.1)  # 16 and the packed head


def test_questions_answers_and_rungs_are_told_as_they_were_counted() -> None:
    told = after(make_pressed("precision", "pass"), WALL)
    assert (told["probes_known"], told["probes_right"], told["probes_percent"]) == (30, 27, 90.0)
    assert (told["answers"], told["same_answers"]) == (2, 1)
    rungs = [told[f"rung{bits}_kl"] for bits in (8, 4, 3, 2)]
    assert rungs == [0.005, 0.23, 1.63, 11.4] and told["breaking_bits"] == "3"


def test_the_answer_that_is_quoted_is_the_first_that_parts() -> None:
    told = after(make_pressed("precision", "pass"), WALL)  # the first is the same
    assert told["asked"] == "Why is the sky blue?"
    assert told["babble"] == "Because the air scatters light."
    fell = after(make_pressed("precision", "fallen"), WALL)
    assert fell["asked"] == "What is the capital of France?" and fell["babble"] == BABBLE
    assert fell["fallen"] is True and fell["full_answer"] == "Paris."


def test_where_all_are_the_same_the_first_is_quoted() -> None:
    result = make_pressed("furnace", "pass")
    assert result.quality is not None
    same = (Answer("a?", "yes", "yes"), Answer("b?", "no", "no"))
    quality = msgspec.structs.replace(result.quality, answers=same)
    told = after(msgspec.structs.replace(result, quality=quality))
    assert (told["asked"], told["babble"], told["same_answers"]) == ("a?", "yes", 2)


def test_nobody_asked_is_nobody_quoted() -> None:
    bare = Quality(0.1, 0.9, 1.0, 2048, "")
    told = after(msgspec.structs.replace(make_pressed(), quality=bare))
    assert not {"asked", "babble", "answers", "probes_right", "probes_percent"} & set(told)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("a\x1b[31mb\n c\u202e", "ab c"),
        ("x" * 12, "x" * 12),
        ("x" * 13, "x" * 9 + "..."),
        ("巴黎巴黎巴黎", "巴黎巴黎巴黎"),
        ("巴黎巴黎巴黎巴", "巴黎巴黎..."),
        ("[b]bold[/b]", "[b]bold[/b]"),
    ],
)
def test_foreign_words_become_one_clean_line_that_fits(text: str, quoted: str) -> None:
    assert quotation(text, 12) == quoted


@pytest.mark.parametrize("stage", ["furnace", "precision"])
@pytest.mark.parametrize("case", ["pass", "fail", "fallen"])
def test_every_fact_is_of_its_kind(stage: str, case: str) -> None:
    kinds = {"number": (int, float), "text": (str,), "bool": (bool,)}
    result = make_pressed(stage, case)  # type: ignore[arg-type]
    told = {**before(), **after(result, WALL if stage == "precision" else FURNACE)}
    for name, value in told.items():
        fact = FACTS[name]
        assert isinstance(value, kinds[fact.kind]), name
        assert isinstance(value, bool) == (fact.kind == "bool"), name
        assert not fact.words or value in fact.words, name
        if fact.kind == "number":
            assert fact.low <= float(value) <= fact.high, name
