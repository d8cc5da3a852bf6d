"""What to do about a build that drafts, or should: the advice that fits what was measured."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from canned_drafts import FAIR, UNFAIR, Drafting, make_drafted
from canned_trials import Case, make_result
from canned_weights import make_pressed

from engine.config import DraftConfig
from engine.domains import Value
from engine.draft_report import Lossless
from engine.trial import Bound, TrialResult
from game.rules.draft_advice import draft_advice
from game.rules.judge import judge
from game.rules.verdict import Remark
from game.wording import remark_words
from story.loader import load_interface_texts
from story.schema import LANGUAGES

FAULTY = Lossless(requests=8, identical=5, near_ties=1, widest=0.004, allowed=0.01)


def advised(result: TrialResult, bounds: Sequence[Bound] | None = None) -> list[Remark]:
    return list(judge(result, result.spec.bounds if bounds is None else bounds).advice)


def kind(name: str, length: int) -> dict[str, Value]:
    return {"draft.kind": name, "draft.length": length}


def test_where_nobody_drafts_somebody_should() -> None:
    assert advised(make_drafted({"draft.kind": "none"})) == [Remark("no_draft")]


def test_a_draft_that_takes_most_of_decode_should_be_cheaper() -> None:
    """Four tokens at 0.9 of 4.9 steps: 73.5 %."""
    assert advised(make_drafted(kind("exit", 4))) == [Remark("cheaper_draft", {"share": "73.5"})]


def test_a_draft_beyond_the_best_length_should_be_shorter() -> None:
    """1.66 tokens from eight drafted: r is 0.4, and one alone would gain, 1.4 for 1.25 steps."""
    assert advised(make_drafted(kind("ngram", 8))) == [Remark("shorter_draft")]


def test_a_draft_before_the_best_length_should_be_longer() -> None:
    """1.8 tokens for 1.5 steps; two drafted would give 2.44 for 2.0."""
    short = Drafting(0.45, 1.05, (80,))
    assert advised(make_drafted(kind("self4", 1), drafting=short)) == [Remark("longer_draft")]


def test_a_draft_that_is_short_enough_should_know_the_model_better() -> None:
    expected = [Remark("better_draft", {"accepted": "30"})]
    assert advised(make_drafted(kind("self8", 1))) == expected


def test_where_no_length_gains_a_shorter_draft_is_no_remedy() -> None:
    """1.2 tokens for 2.7 steps, r 0.17; one token alone, 1.17 for 1.425. 5 % of 400 stood."""
    poor = Drafting(0.3, 1.5, (20, 0, 0, 0))
    assert advised(make_drafted(kind("self4", 4), drafting=poor)) == [
        Remark("better_draft", {"accepted": "5"})
    ]


def test_answers_that_differ_are_a_fault_whatever_the_speed() -> None:
    told = Remark("not_lossless", {"faults": "2", "requests": "8"})
    assert advised(make_drafted(lossless=FAULTY)) == [told]
    slow = advised(make_drafted(kind("ngram", 8), lossless=FAULTY))
    assert slow == [Remark("shorter_draft"), told]


def test_draws_that_are_not_the_models_are_a_fault_whatever_the_speed() -> None:
    told = Remark("not_drawn", {"tokens": "384"})
    assert advised(make_drafted(drawn=UNFAIR)) == [told]
    assert advised(make_drafted(kind("ngram", 8), drawn=UNFAIR)) == [Remark("shorter_draft"), told]
    assert judge(make_drafted(drawn=FAIR), make_drafted().spec.bounds).word == "pass"


def test_near_ties_are_no_fault() -> None:
    ties = Lossless(requests=8, identical=5, near_ties=3, widest=0.004, allowed=0.01)
    assert judge(make_drafted(lossless=ties), make_drafted().spec.bounds).word == "pass"
    assert draft_advice(["lossless"], make_drafted(lossless=ties)) == ()


def test_a_reference_that_drafts_says_nothing_of_drafting() -> None:
    result = make_drafted(kind("ngram", 8))
    drafting = msgspec.structs.replace(result.reference_config, draft=DraftConfig(kind="ngram"))
    result = msgspec.structs.replace(result, reference_config=drafting)
    assert draft_advice(["tpot_ratio"], result) == ()


def test_a_trial_that_measured_nothing_is_told_nothing() -> None:
    result = msgspec.structs.replace(make_drafted(kind("ngram", 8)), pairs=(), draft=None)
    assert draft_advice(["tpot_ratio", "lossless", "kl"], result) == ()


def test_each_is_told_once() -> None:
    result = make_drafted({"draft.kind": "none"})
    assert draft_advice(["tpot_ratio", "tpot_ratio"], result) == (Remark("no_draft"),)


@pytest.mark.parametrize("case", ["pass", "fail"])
def test_other_halls_keep_their_advice(case: Case) -> None:
    """A goal on TPOT breaks there too; nobody is told to draft."""
    strict = (Bound("tpot_ratio", "<=", 0.1),)
    assert [one.code for one in advised(make_result("pendulum", case), strict)] == [
        "move_fewer_bytes"
    ]
    pressed = make_pressed("furnace", build={"weights.bits": 3, "weights.method": "awq"})
    assert [one.code for one in advised(pressed)] == ["fast_width", "finer_grid"]


def test_a_build_that_drafts_in_another_hall_is_advised_too() -> None:
    result = make_drafted(kind("exit", 4))
    spec = msgspec.structs.replace(result.spec, stage="questions", bounds=(result.spec.bounds[0],))
    assert [one.code for one in advised(msgspec.structs.replace(result, spec=spec))] == [
        "cheaper_draft"
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_advice_is_filled_in_both_languages(language: str) -> None:
    texts = load_interface_texts(language)
    trials = (
        make_drafted({"draft.kind": "none"}), make_drafted(kind("exit", 4)),
        make_drafted(kind("ngram", 8), lossless=FAULTY), make_drafted(kind("self8", 1)),
        make_drafted(kind("self4", 1), drafting=Drafting(0.45, 1.05, (80,))),
    )  # fmt: skip
    for result in trials:
        for one in advised(result):
            said = remark_words(lambda key, **values: texts[key].format(**values), one)
            assert said and "{" not in said
            assert all(detail in said for detail in one.details.values())
