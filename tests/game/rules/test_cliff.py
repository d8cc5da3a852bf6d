"""The cliff: which models have fallen, which width breaks, and what the judge says of both."""

from __future__ import annotations

import math

import msgspec
import pytest
from canned_weights import AWQ, LADDER, RTN, make_pressed

from engine.domains import Value
from engine.quality_report import Quality, Rung
from engine.trial import Bound, Fault, TrialResult
from game.rules.cliff import CLIFF_KL, breaking_bits, fell
from game.rules.guess import score
from game.rules.judge import judge, truth
from game.rules.verdict import Verdict
from game.trial_record import record_of, scored_guess, verdict_of
from story.schema import Guess, Stage

CHOICES = ("8", "4", "3", "2")
WALL = Stage(
    id="precision",
    order=6,
    open=True,
    scar="cliff",
    guess=Guess("choice", "breaking_bits", choices=CHOICES),
)


def quality(kl: float) -> Quality:
    return Quality(kl, 0.5, 1.0, 2048, "")


def judged(result: TrialResult) -> Verdict:
    return judge(result, result.spec.bounds)


def codes(verdict: Verdict) -> list[str]:
    return [remark.code for remark in verdict.reasons]


def test_plain_rounding_falls_at_three_bits_and_a_better_method_does_not() -> None:
    assert fell(quality(RTN[3, 32])) and not fell(quality(AWQ[3, 32]))
    assert not fell(quality(RTN[4, 64])) and fell(quality(AWQ[2, 32]))


@pytest.mark.parametrize(
    ("kl", "fallen"),
    [(0.0, False), (0.999, False), (1.0, True), (11.4, True), (math.inf, True), (math.nan, True)],
)
def test_the_edge_itself_is_over_it(kl: float, fallen: bool) -> None:
    assert CLIFF_KL == 1.0 and fell(quality(kl)) is fallen


def test_what_nobody_looked_at_has_not_fallen() -> None:
    assert not fell(None)


@pytest.mark.parametrize(
    ("figures", "word"),
    [
        ({8: 0.005, 4: 0.23, 3: 1.63, 2: 11.4}, "3"),
        ({2: 11.4, 3: 1.63, 4: 0.23, 8: 0.005}, "3"),
        ({8: 1.0, 4: 0.2}, "8"),
        ({8: 0.0, 4: 0.1, 3: 0.5, 2: 0.9}, "none"),
        ({8: 0.0, 2: math.nan}, "2"),
        ({}, "none"),
    ],
)
def test_the_breaking_width_is_the_widest_that_falls(figures: dict[int, float], word: str) -> None:
    assert breaking_bits([Rung(bits, kl, 0.5) for bits, kl in figures.items()]) == word


def test_the_ladder_answers_the_question_whatever_became_of_the_build() -> None:
    for case in ("pass", "fail", "fallen"):
        result = make_pressed("precision", case)  # type: ignore[arg-type]
        assert truth(result, "breaking_bits") == truth(judged(result), "breaking_bits") == "3"


@pytest.mark.parametrize("guess", CHOICES)
def test_only_the_width_that_broke_is_the_right_choice(guess: str) -> None:
    assert [rung.kl for rung in LADDER] == [0.005, 0.23, 1.63, 11.4]
    verdict = judged(make_pressed("precision", "pass"))
    scored, measured = scored_guess(WALL, guess, verdict, True)
    assert measured == "3" and scored is not None
    assert scored.close is (guess == "3") and scored.factor == float(guess == "3")


@pytest.mark.parametrize("rungs", [(), LADDER[:1], LADDER[1:]])
def test_a_ladder_with_a_rung_missing_answers_nothing(rungs: tuple[Rung, ...]) -> None:
    verdict = judged(msgspec.structs.replace(make_pressed("precision"), ladder=rungs))
    with pytest.raises(ValueError, match="did not measure 'breaking_bits'"):
        truth(verdict, "breaking_bits")
    scored, _ = scored_guess(WALL, "3", verdict, True)
    assert scored is not None and scored.close is None and scored.truth is None


def test_a_fall_is_said_first_and_quality_bound_it() -> None:
    verdict = judged(make_pressed("precision", "fallen"))
    assert verdict.word == "fail" and verdict.fallen and not verdict.flooded
    assert codes(verdict)[0] == "over_the_cliff" and "goal_broken" in codes(verdict)
    assert verdict.reasons[0].details == {"kl": "1.63", "cliff": "1", "top1": "43"}
    assert (verdict.bound_by, verdict.bound_share) == ("quality", 0.0)


def test_a_build_that_broke_another_goal_first_still_fell_by_its_quality() -> None:
    result = make_pressed("furnace", "fallen")  # its steps are too slow as well
    verdict = judged(result)
    assert [goal.metric for goal in verdict.goals if goal.holds is False][0] == "tpot_ratio"
    assert verdict.fallen and verdict.bound_by == "quality"


@pytest.mark.parametrize("build", [{}, {"weights.bits": 3, "weights.method": "awq"}])
def test_what_did_not_fall_is_not_said_to_have(build: dict[str, Value]) -> None:
    assert "over_the_cliff" not in codes(judged(make_pressed("precision", build=build)))


def test_full_weights_do_not_fall_whatever_else_took_their_meaning() -> None:
    result = make_pressed("precision", "fail")
    lost = msgspec.structs.replace(result, quality=quality(3.0))
    assert not judged(lost).fallen


def test_a_fall_that_cannot_be_believed_is_none() -> None:
    result = make_pressed("precision", "fallen")
    verdict = judged(msgspec.structs.replace(result, faults=(Fault("throttled"),)))
    assert verdict.word == "invalid" and not verdict.fallen


def test_a_fall_where_no_goal_is_on_quality_fails_nothing() -> None:
    result = make_pressed("precision", "fallen")
    assert judge(result, [Bound("average_bits", "<=", 8.0)]).word == "pass"


def test_the_record_keeps_the_word_and_older_records_are_still_read() -> None:
    result = make_pressed("precision", "fallen")
    record = record_of(WALL, result.spec.build, judged(result), result, None, 0)
    kept = msgspec.json.decode(msgspec.json.encode(record), type=type(record))
    read = verdict_of(kept)
    assert read == judged(result) and read is not None
    assert truth(read, "breaking_bits") == "3"
    older = dict(kept.verdict)
    del older["words"]
    old = verdict_of(msgspec.structs.replace(kept, verdict=older))
    assert old is not None and old.words == {} and old.fallen


@pytest.mark.parametrize("build", [{}, {"weights.bits": 8}, {"weights.bits": 3}])
def test_the_gain_of_four_bits_is_known_of_four_bits_alone(build: dict[str, Value]) -> None:
    rule = Guess("dial", "four_bit_gain", low=0.2, high=20, close=1.25)
    hall = Stage(id="furnace", order=3, open=True, guess=rule)
    verdict = judged(make_pressed("furnace", build=build))
    scored, measured = scored_guess(hall, 2.0, verdict, True)
    assert verdict.word == "fail" and measured is None
    assert scored == score(2.0, None, rule) and scored.close is None  # sealed as it was
    later = judged(make_pressed("furnace", "pass"))  # half the time a step
    scored, measured = scored_guess(hall, 2.0, later, True)
    assert measured == pytest.approx(2.0, rel=0.01)
    assert scored is not None and scored.close is True
