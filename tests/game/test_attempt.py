"""A visit to a hall: which step may follow which, and when a guess is scored."""

from __future__ import annotations

import msgspec
import pytest
from canned_trials import make_verdict
from sealed_records import make_record

from game.attempt import Attempt, FlowError, hints_on_record, truth_was_shown
from game.outcome import Outcome
from saves.documents import GuessRecord
from story.loader import load_stages

STAGES = {stage.id: stage for stage in load_stages()}
STAGE, ABYSS = STAGES["pendulum"], STAGES["abyss"]


def outcome(case: str, truth: float | None = 34.0) -> Outcome:
    return Outcome(
        stage="pendulum",
        build={},
        verdict=make_verdict("pendulum", case),  # type: ignore[arg-type]
        result=None,
        record=None,
        guess=GuessRecord(18.0, truth, None, None),
        debt_before=0,
        debt_after=0,
    )


def at_forge() -> Attempt:
    attempt = Attempt(STAGE)
    attempt.move("guess")
    attempt.seal(18.0)
    attempt.move("forge")
    return attempt


def judged(case: str, truth: float | None = 34.0) -> Attempt:
    attempt = at_forge()
    attempt.move("trial")
    attempt.judged(outcome(case, truth))
    return attempt


@pytest.mark.parametrize(
    "room", ["counsel", "forge", "trial", "verdict", "aftermath", "insight", "arrival"]
)
def test_nothing_but_the_guess_follows_the_arrival(room: str) -> None:
    with pytest.raises(FlowError):
        Attempt(STAGE).move(room)  # type: ignore[arg-type]


def test_the_forge_is_closed_until_the_guess_is_sealed() -> None:
    attempt = Attempt(STAGE)
    attempt.move("guess")
    with pytest.raises(FlowError, match="sealed"):
        attempt.move("counsel")
    for room in ("forge", "trial", "verdict"):
        with pytest.raises(FlowError):
            attempt.move(room)  # type: ignore[arg-type]


def test_a_sealed_guess_cannot_be_changed() -> None:
    attempt = at_forge()
    with pytest.raises(FlowError):
        attempt.seal(99.0)
    assert attempt.guess == 18.0


def test_one_does_not_leave_a_running_trial_nor_turn_its_knobs() -> None:
    attempt = at_forge()
    attempt.move("trial")
    with pytest.raises(FlowError):
        attempt.move("left")
    with pytest.raises(FlowError):
        attempt.turn("schedule.batch", 8)


def test_an_aborted_trial_keeps_everything() -> None:
    attempt = at_forge()
    attempt.turn("schedule.batch", 8)
    attempt.move("trial")
    attempt.move("forge")
    assert attempt.build["schedule.batch"] == 8 and attempt.guess == 18.0 and attempt.scored


@pytest.mark.parametrize("case", ["fail", "straddle", "fault"])
def test_only_a_pass_leads_to_the_insight(case: str) -> None:
    attempt = judged(case)
    attempt.move("aftermath")
    with pytest.raises(FlowError, match="passed"):
        attempt.move("insight")
    attempt.move("forge")


def test_a_pass_leads_to_the_insight_and_back_to_the_forge_for_more() -> None:
    attempt = judged("pass")
    for room in ("aftermath", "insight", "forge"):
        attempt.move(room)  # type: ignore[arg-type]


def test_the_guess_is_scored_until_the_truth_is_shown() -> None:
    assert judged("fault", truth=None).scored, "an invalid trial shows nothing"
    for case in ("pass", "fail"):
        assert not judged(case).scored
    assert not Attempt(STAGE, truth_known=True).scored


@pytest.mark.parametrize(
    ("case", "scene"),
    [("pass", "passed"), ("fail", "failed"), ("straddle", "undecided"), ("fault", "undecided")],
)
def test_each_verdict_has_its_scene(case: str, scene: str) -> None:
    assert judged(case).aftermath_scene == scene


def test_foreign_knobs_are_refused_and_reset_gives_the_default_build() -> None:
    attempt = at_forge()
    with pytest.raises(FlowError, match=r"workload\.prompt"):
        attempt.turn("workload.prompt", 16)
    attempt.turn("schedule.batch", 64)
    attempt.reset()
    assert attempt.build == dict(STAGE.build)


def test_what_is_on_record_is_known() -> None:
    told = make_record("pendulum", guess=GuessRecord(18.0, 34.0, 1.9, False))
    void = make_record("pendulum", guess=GuessRecord(18.0, None, None, None))
    assert truth_was_shown("pendulum", [void, told])
    assert not truth_was_shown("pendulum", [void])
    assert not truth_was_shown("gate", [told])
    assert hints_on_record("pendulum", []) == 0


def test_hints_stop_at_three() -> None:
    attempt = at_forge()
    assert [attempt.take_hint() for _ in range(5)] == [1, 2, 3, 3, 3]


def fallen(*cases: str, met: bool = False, scarred: bool = False) -> Attempt:
    """A visit to the abyss in which these trials were judged, one after the other."""
    attempt = Attempt(ABYSS, met=met, scarred=scarred)
    attempt.move("guess")
    attempt.seal(40.0)
    for case in cases:
        attempt.move("forge")
        attempt.move("trial")
        verdict = make_verdict("abyss", case)  # type: ignore[arg-type]
        attempt.judged(Outcome("abyss", {}, verdict, None, None, None, 0, 0))
    return attempt


@pytest.mark.parametrize(
    ("case", "scene"),
    [("pass", "passed"), ("fail", "failed"), ("flooded", "scar"), ("fault", "undecided")],
)
def test_a_flood_is_told_by_the_scene_of_the_scar(case: str, scene: str) -> None:
    assert fallen(case).aftermath_scene == scene


def test_a_flood_in_a_hall_that_demands_none_has_only_failed() -> None:
    attempt = at_forge()
    attempt.move("trial")
    flooded = make_verdict("abyss", "flooded")
    attempt.judged(Outcome("pendulum", {}, flooded, None, None, None, 0, 0))
    assert not attempt.scarring and attempt.aftermath_scene == "failed" and not attempt.complete


def test_a_fall_is_the_scar_of_the_cliff_and_of_no_other_hall() -> None:
    wall = msgspec.structs.replace(ABYSS, id="precision", scar="cliff")
    for hall, scene in ((wall, "scar"), (ABYSS, "failed"), (STAGE, "failed")):
        attempt = Attempt(hall, met=True)
        attempt.move("guess")
        attempt.seal("3")
        attempt.move("forge")
        attempt.move("trial")
        verdict = make_verdict("precision", "fallen")
        attempt.judged(Outcome(hall.id, {}, verdict, None, None, None, 0, 0))
        assert attempt.aftermath_scene == scene
        assert attempt.scarred is attempt.complete is (hall is wall)


def test_a_pass_leads_into_the_descent_and_from_there_only_to_the_forge() -> None:
    attempt = fallen("pass")
    assert attempt.descending and not attempt.complete
    attempt.move("aftermath")
    with pytest.raises(FlowError, match="scar is left"):
        attempt.move("insight")
    attempt.move("descent")
    for room in ("insight", "trial", "verdict", "aftermath"):
        with pytest.raises(FlowError):
            attempt.move(room)  # type: ignore[arg-type]
    attempt.move("forge")


@pytest.mark.parametrize(
    ("cases", "met", "scarred"),
    [
        (("pass", "flooded"), False, False),
        (("flooded", "pass"), False, False),
        (("flooded",), True, False),
        (("pass",), False, True),
        (("pass", "fail", "flooded"), False, False),
        (("flooded",), True, True),
        (("pass",), True, True),
    ],
)
def test_goals_and_scar_open_the_insight_in_whichever_order_and_visit(
    cases: tuple[str, ...], met: bool, scarred: bool
) -> None:
    attempt = fallen(*cases, met=met, scarred=scarred)
    assert attempt.complete and not attempt.descending
    attempt.move("aftermath")
    with pytest.raises(FlowError, match="descent"):
        attempt.move("descent")
    attempt.move("insight")


@pytest.mark.parametrize(
    ("cases", "met", "scarred"),
    [
        (("flooded",), False, False),
        (("pass",), False, False),
        (("fail",), True, True),
        (("fault",), True, True),
        (("pass", "fail"), False, True),
        (("flooded", "flooded"), False, True),
    ],
)
def test_nothing_less_opens_it(cases: tuple[str, ...], met: bool, scarred: bool) -> None:
    attempt = fallen(*cases, met=met, scarred=scarred)
    attempt.move("aftermath")
    with pytest.raises(FlowError, match="passed and its scar is left"):
        attempt.move("insight")
    if not attempt.passed:
        with pytest.raises(FlowError, match="follows a pass"):
            attempt.move("descent")
    attempt.move("forge")


def test_a_hall_without_a_scar_has_no_descent() -> None:
    attempt = judged("pass")
    assert not attempt.descending
    attempt.move("aftermath")
    with pytest.raises(FlowError, match="descent"):
        attempt.move("descent")
