"""A hall from its first line to its insight, by its keys: what must come, and what cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from canned_engine import CannedEngine, open_session
from hall_walk import in_hall
from text_grid import text_of

from game.screens.forge import ForgeScreen
from game.screens.guess import GuessScreen
from game.screens.insight import InsightScreen
from game.screens.map import MapScreen
from game.screens.scene import SceneScreen
from game.screens.trial import TrialScreen
from game.screens.verdict import VerdictScreen


@pytest.fixture(autouse=True)
def cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "cache"))


WINNING = ("right", "right", "right", "down", "right")
"""In the forge: batch to 8, precision to bfloat16."""


async def test_a_hall_is_played_to_its_end_and_the_map_is_back(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        assert isinstance(walk.app.screen, SceneScreen)
        await walk.to("guess")
        assert isinstance(walk.app.screen, GuessScreen)
        await walk.press("1", "8")
        await walk.to("forge")
        assert isinstance(walk.app.screen, ForgeScreen)
        await walk.press(*WINNING)
        await walk.to("verdict")
        assert isinstance(walk.app.screen, VerdictScreen)
        await walk.to("insight")
        assert isinstance(walk.app.screen, InsightScreen)
        await walk.to("left")
        await walk.pilot.pause()
        assert isinstance(walk.app.screen, MapScreen)
        (record,) = walk.session.records()
        assert record.build["schedule.batch"] == 8
        assert record.build["run.precision"] == "bfloat16"
        assert record.guess is not None and record.guess.value == 18.0
        assert "pendulum" in walk.session.standing().passed


async def test_enter_alone_never_passes_the_guess_unsealed(tmp_path: Path) -> None:
    """One Enter arms; any other move lifts the hand; only two in a row seal."""
    async with in_hall(tmp_path) as walk:
        await walk.to("guess")
        for keys in (("enter", "right"), ("enter", "escape"), ("enter", "5"), ("enter", "home")):
            await walk.press(*keys)
            assert walk.attempt.room == "guess" and walk.attempt.guess is None
            assert not walk.app.screen.armed  # type: ignore[attr-defined]
        assert walk.engine.trials == []


@pytest.mark.parametrize("stage", ["gate", "pendulum"])
async def test_enter_pressed_on_and_on_seals_nothing(tmp_path: Path, stage: str) -> None:
    """Who reads a scene with Enter must not lose a guess at its end."""
    async with in_hall(tmp_path, stage) as walk:
        await walk.press(*["enter"] * 40)
        assert walk.attempt.room == "guess" and walk.attempt.guess is None


async def test_a_fast_hand_does_not_run_from_the_scene_into_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ForgeScreen, "SETTLE_SECONDS", 3600.0)
    async with in_hall(tmp_path) as walk:
        await walk.to("forge")
        await walk.press("enter", "enter", "enter")
        assert walk.attempt.room == "forge"
        monkeypatch.setattr(ForgeScreen, "SETTLE_SECONDS", 0.0)
        await walk.press("enter")
        assert walk.attempt.room in ("trial", "verdict")


async def test_no_key_leads_from_the_guess_to_a_trial(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        await walk.to("guess")
        await walk.press("t", "h", "d", "v", "space", "r", "s", "tab", "down", "up")
        assert walk.attempt.room == "guess"
        assert walk.attempt.guess is None and walk.engine.trials == []


async def test_escape_stops_a_trial_and_costs_nothing(tmp_path: Path) -> None:
    async with in_hall(tmp_path, engine=CannedEngine(hold=True)) as walk:
        await walk.to("forge")
        await walk.press("right", "right")
        await walk.begin_trial()
        assert isinstance(walk.app.screen, TrialScreen) and walk.app.calm
        await walk.press("escape")
        await walk.settle()
        assert walk.engine.aborts == 1
        assert isinstance(walk.app.screen, ForgeScreen) and not walk.app.calm
        assert walk.attempt.build["schedule.batch"] == 4, "the knobs stay where they were"
        assert walk.session.records() == () and walk.session.standing().debt == 0
        assert "Nothing was lost" in text_of(walk.app)
        # The same guess is still sealed, and still to be scored.
        assert walk.attempt.guess is not None and walk.attempt.scored


async def test_an_engine_that_will_not_stop_does_not_hold_the_player(tmp_path: Path) -> None:
    """The forge is back within a second; the next trial waits for the engine instead."""
    engine = CannedEngine(hold=True)

    async def deaf() -> None:
        engine.aborts += 1

    engine.abort = deaf  # type: ignore[method-assign]
    async with in_hall(tmp_path, engine=engine) as walk:
        await walk.to("forge")
        await walk.begin_trial()
        await walk.press("escape")
        await walk.pilot.pause(1.2)
        assert isinstance(walk.app.screen, ForgeScreen)
        await walk.begin_trial()
        assert len(engine.trials) == 1, "the second trial waits for the first to end"
        engine.hold = False
        engine.release()
        await walk.settle()
        assert len(engine.trials) == 2
        assert isinstance(walk.app.screen, VerdictScreen)


async def test_a_dead_engine_gives_a_calm_invalid_verdict(tmp_path: Path) -> None:
    async with in_hall(tmp_path, engine=CannedEngine(hold=True)) as walk:
        await walk.to("forge")
        await walk.begin_trial()
        walk.engine.die()
        await walk.settle()
        assert isinstance(walk.app.screen, VerdictScreen)
        assert walk.attempt.outcome is not None
        assert walk.attempt.outcome.verdict.word == "invalid"
        shown = text_of(walk.app)
        assert "INVALID" in shown and "Nothing is charged" in shown
        assert "Latency debt 0 -> 0" in shown
        assert walk.attempt.scored, "the truth was not shown: the guess is still to be scored"
        await walk.press("t")
        assert isinstance(walk.app.screen, ForgeScreen)


async def test_a_failed_trial_leads_back_to_the_forge_and_never_to_the_insight(
    tmp_path: Path,
) -> None:
    async with in_hall(tmp_path) as walk:
        await walk.to("verdict")
        assert "FAIL" in text_of(walk.app)
        debt = walk.session.standing().debt
        assert debt > 0
        await walk.to("forge")
        assert isinstance(walk.app.screen, ForgeScreen)
        # The second trial carries the guess unscored: only the failure is charged.
        guess = walk.attempt.guess
        await walk.to("verdict")
        records = walk.session.records()
        assert [record.guess.value for record in records if record.guess] == [guess, guess]
        assert records[1].guess is not None and records[1].guess.close is None
        assert walk.session.standing().debt == debt + 2


async def test_a_later_visit_asks_again_and_says_that_it_costs_nothing(tmp_path: Path) -> None:
    engine = CannedEngine()
    session = open_session(tmp_path, engine)
    async with in_hall(tmp_path, engine=engine, session=session) as walk:
        await walk.to("verdict")
        debt = session.standing().debt
    session = open_session_again(tmp_path, engine)
    async with in_hall(tmp_path, engine=engine, session=session) as walk:
        await walk.to("guess")
        assert "shown you this answer before" in text_of(walk.app)
        await walk.press("2", "0")
        await walk.to("forge")
        await walk.press(*WINNING)
        await walk.to("verdict")
        guess = session.records()[-1].guess
        assert guess is not None and guess.close is None and guess.truth is not None
        gained = len(walk.attempt.outcome.crowns_new)  # type: ignore[union-attr]
        assert session.standing().debt == max(debt - gained, 0), "crowns repay, the guess does not"


def open_session_again(home: Path, engine: CannedEngine):  # type: ignore[no-untyped-def]
    from game.session import Session

    return Session.open(home, make_client=lambda *_: engine)


@pytest.mark.parametrize("room", ["arrival", "guess", "forge", "trial", "verdict", "insight"])
async def test_the_language_changes_anywhere_and_nothing_else_does(
    tmp_path: Path, room: str
) -> None:
    engine = CannedEngine()
    async with in_hall(tmp_path, engine=engine) as walk:
        if room != "arrival":
            await walk.to("guess")
            await walk.press("2", "4")
        if room not in ("arrival", "guess"):
            await walk.to("forge")
            await walk.press(*WINNING)
        if room == "trial":
            engine.hold = True
            await walk.begin_trial()
        elif room in ("verdict", "insight"):
            await walk.to(room)  # type: ignore[arg-type]
        screen, before = walk.app.screen, text_of(walk.app)
        build, guess = dict(walk.attempt.build), walk.attempt.guess
        await walk.press("f2")
        await walk.pilot.pause()
        assert walk.app.screen is screen and walk.attempt.room == room
        shown = text_of(walk.app)
        assert shown != before and any("一" <= sign <= "鿿" for sign in shown)
        assert "[" + "key." not in shown
        assert walk.attempt.build == build and walk.attempt.guess == guess
        await walk.press("f2")
        await walk.pilot.pause()
        assert text_of(walk.app) == before, "there and back is the same screen"
        engine.release()
        await walk.settle()


async def test_hints_are_counted_from_the_moment_they_are_taken(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        await walk.to("forge")
        await walk.press("h")
        assert "0 of 3 taken" in text_of(walk.app)
        await walk.press("enter", "enter")
        assert walk.attempt.hints_taken == 2 and "2 of 3 taken" in text_of(walk.app)
        await walk.press("s")
        assert walk.attempt.build["schedule.batch"] == 1, "the recipe opens with the third hint"
        await walk.press("enter", "s")
        assert isinstance(walk.app.screen, ForgeScreen)
        assert walk.attempt.build["schedule.batch"] == 8
        await walk.to("verdict")
        assert walk.session.records()[-1].hints_taken == 3
        assert walk.attempt.passed


async def test_history_holds_lines_and_verdicts_and_speaks_both_languages(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        await walk.to("verdict")
        await walk.press("b")
        assert " x FAIL " in text_of(walk.app)
        await walk.press("f2")
        assert " x 未过 " in text_of(walk.app)
        await walk.press("escape")
        assert isinstance(walk.app.screen, VerdictScreen)


async def test_every_step_back_leads_to_the_map(tmp_path: Path) -> None:
    for room in ("arrival", "guess", "forge", "verdict"):
        async with in_hall(tmp_path / room) as walk:
            if room != "arrival":
                await walk.to(room)  # type: ignore[arg-type]
            await walk.press("escape")
            await walk.pilot.pause()
            assert isinstance(walk.app.screen, MapScreen), room
            assert len(walk.app.screen_stack) == 2 or isinstance(walk.app.screen, MapScreen)
