"""What to do about weights in fewer bits: the advice that fits the goal that broke."""

from __future__ import annotations

import msgspec
import pytest
from canned_weights import make_pressed

from engine.domains import Value
from engine.trial import RunSample, TrialResult
from game.rules.judge import judge
from game.rules.verdict import Verdict
from story.loader import load_interface
from story.schema import LANGUAGES

FOUR: dict[str, Value] = {"weights.bits": 4, "weights.group": 64}


def judged(result: TrialResult) -> Verdict:
    return judge(result, result.spec.bounds)


def advised(stage: str = "furnace", **build: Value) -> list[str]:
    whole: dict[str, Value] = {f"weights.{name}": value for name, value in build.items()}
    verdict = judged(make_pressed(stage, build=whole))
    return [remark.code for remark in verdict.advice]


def slower(run: RunSample) -> RunSample:
    """A prefill of twice the time."""
    return msgspec.structs.replace(
        run,
        ttft=(2 * run.prefill_seconds,),
        prefill_seconds=2 * run.prefill_seconds,
        wall_seconds=run.wall_seconds + run.prefill_seconds,
    )


def test_full_weights_are_told_to_lose_bits() -> None:
    assert advised() == ["fewer_bits"]
    assert advised("precision") == ["fewer_bits"]


def test_rounding_that_lost_too_much_is_told_of_better_methods() -> None:
    assert advised(bits=4, group=64) == ["better_method"]  # KL 0.36 against 0.15


def test_a_better_method_that_lost_too_much_is_told_of_finer_grids() -> None:
    assert advised(bits=4, group=192, method="awq")[-1] == "finer_grid"  # 0.178 against 0.15


def test_a_width_that_is_unpacked_for_every_product_is_told_of_those_that_are_not() -> None:
    assert advised(bits=3, method="awq") == ["fast_width", "finer_grid"]


def test_packed_codes_that_are_multiplied_as_they_lie_are_no_fault() -> None:
    whole: dict[str, Value] = {"weights.bits": 3, "weights.method": "awq"}
    result = make_pressed("furnace", build=whole)
    path = {name: form.replace(" plain", " compiled") for name, form in result.kernel_path.items()}
    compiled = judged(msgspec.structs.replace(result, kernel_path=path))
    assert [remark.code for remark in compiled.advice] == ["finer_grid"]


def test_a_prefill_that_was_never_made_dense_is_told_of_the_crossover() -> None:
    assert advised(bits=4, method="awq", group=32, crossover=0) == ["dense_prefill"]


@pytest.mark.parametrize(("crossover", "told"), [(0, True), (1024, True), (2048, True), (4, False)])
def test_the_crossover_is_not_advised_where_prefill_crossed_it(crossover: int, told: bool) -> None:
    """1,024 rows of a prompt cross whatever is below 1,024."""
    build: dict[str, Value] = {**FOUR, "weights.method": "awq", "weights.crossover": crossover}
    result = make_pressed("furnace", build=build)
    slow = tuple(
        msgspec.structs.replace(pair, candidate=slower(pair.candidate)) for pair in result.pairs
    )
    verdict = judged(msgspec.structs.replace(result, pairs=slow))
    assert ("dense_prefill" in [remark.code for remark in verdict.advice]) is told


def test_packed_by_onednn_is_not_packed_in_few_bits() -> None:
    result = make_pressed("furnace", build={"weights.bits": 8})
    path = {"linear": "int8-row + onednn-packed bfloat16", "head": "int8-row bfloat16"}
    verdict = judged(msgspec.structs.replace(result, kernel_path=path))
    assert "fast_width" not in [remark.code for remark in verdict.advice]


def test_every_advice_is_written_in_both_languages() -> None:
    codes = ("fewer_bits", "better_method", "finer_grid", "dense_prefill", "fast_width",
             "over_the_cliff")  # fmt: skip
    for language in LANGUAGES:
        words = load_interface(language)
        assert all(words.find(f"remark.{code}") for code in codes)
