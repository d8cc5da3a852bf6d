"""Scenes: text at the reader's speed, skipping that never passes over what is new."""

from __future__ import annotations

from pathlib import Path

import pytest
from canned_engine import CannedEngine, open_session
from hall_walk import Walk, in_hall
from text_grid import text_of

from game.screens.scene import SceneScreen
from game.session import Session
from game.widgets.dialogue import Dialogue


@pytest.fixture(autouse=True)
def cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "cache"))


def scene(walk: Walk) -> SceneScreen:
    assert isinstance(walk.app.screen, SceneScreen)
    return walk.app.screen


async def to_choice(walk: Walk) -> SceneScreen:
    for _ in range(40):
        if scene(walk).dialogue.choosing:
            return scene(walk)
        await walk.press("enter")
    raise AssertionError("no choice in this scene")


async def test_text_appears_at_the_settings_speed_and_does_not_move(tmp_path: Path) -> None:
    async with in_hall(tmp_path, text_speed=30) as walk:
        dialogue = walk.app.screen.query_one(Dialogue)
        typing = dialogue._typing
        start = typing.shown
        for _ in range(30):
            dialogue.tick()
        grown = typing.shown - start
        assert 30 <= grown <= 34 or typing.page_done, "thirty ticks are a second: 30 characters"
        first = typing.visible()[0]
        dialogue.tick()
        assert typing.visible()[0].startswith(first)


async def test_enter_completes_the_line_and_only_then_goes_on(tmp_path: Path) -> None:
    async with in_hall(tmp_path, text_speed=1) as walk:
        screen = scene(walk)
        assert not screen.dialogue.done
        await walk.press("enter")
        assert screen.dialogue.done and screen.index == 0
        await walk.press("space")
        assert screen.index == 1 and not screen.dialogue.done


async def test_the_language_changes_in_mid_line_and_the_line_stays(tmp_path: Path) -> None:
    async with in_hall(tmp_path, text_speed=1) as walk:
        screen = scene(walk)
        await walk.press("enter", "enter")
        for _ in range(200):
            screen.dialogue.tick()
        line, shown = screen.line.id, screen.dialogue._typing.shown
        assert shown > 0 and not screen.dialogue.done
        await walk.press("f2")
        assert screen.line.id == line
        typing = screen.dialogue._typing
        assert typing.shown > 0 and not typing.done, "as far through it as before"


async def test_lines_are_seen_from_the_moment_they_appear(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        first = scene(walk).line.id
        await walk.press("enter")
        second = scene(walk).line.id
        seen = walk.session.profile.seen  # type: ignore[union-attr]
        assert {first, second} <= set(seen)


def reopened(home: Path, engine: CannedEngine, **settings: object) -> Session:
    session = Session.open(home, make_client=lambda *_: engine)
    session.update_settings(**settings)
    return session


async def test_skipping_stops_at_choices_and_at_the_unseen(tmp_path: Path) -> None:
    engine = CannedEngine()
    async with in_hall(tmp_path, engine=engine) as walk:
        choice = (await to_choice(walk)).line.id
        await walk.session.close()
    session = reopened(tmp_path, engine, skip_seen=True)
    async with in_hall(tmp_path, engine=engine, session=session) as walk:
        screen = scene(walk)
        assert screen.line.id == choice and screen.dialogue.choosing
        await walk.press("1", "enter")
        # The lines after the choice were never seen: the next one stands and waits.
        index = screen.index
        await walk.pilot.pause()
        assert scene(walk).index == index and walk.attempt.room == "arrival"


async def test_turning_skip_on_does_not_skip_the_line_just_met(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        await walk.press("s")
        assert scene(walk).index == 0


async def test_a_choice_is_answered_by_its_number_and_only_once(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        screen = await to_choice(walk)
        line = screen.line
        await walk.press("9")
        assert screen.reply is None, "there is no ninth answer"
        await walk.press("2")
        assert screen.reply == line.choices[1].id
        shown = " ".join(text_of(walk.app).split())
        assert line.choices[1].answer.split()[0] in shown
        await walk.press("1")
        assert screen.reply == line.choices[1].id


async def test_arrows_choose_an_answer_and_enter_gives_it(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        screen = await to_choice(walk)
        replies = screen.line.choices
        await walk.press("down", "down", "up", "enter")
        assert screen.reply == replies[1].id


async def test_auto_goes_on_after_the_reading_time_and_waits_at_a_choice(tmp_path: Path) -> None:
    async with in_hall(tmp_path, auto=True) as walk:
        screen = scene(walk)
        assert screen._auto_timer is not None
        screen._go_on_by_itself()
        await walk.pilot.pause()
        assert screen.index == 1 and screen._auto_timer is not None
        while not screen.dialogue.choosing:
            screen._go_on_by_itself()
            await walk.pilot.pause()
        index = screen.index
        screen._go_on_by_itself()
        await walk.pilot.pause()
        assert screen.index == index and screen.reply is None


async def test_foreign_names_are_told_as_text_and_never_as_markup(tmp_path: Path) -> None:
    engine = CannedEngine()
    session = open_session(tmp_path, engine)
    session.rename_profile("[bold]x[/bold]")
    async with in_hall(tmp_path, engine=engine, session=session) as walk:
        dialogue = walk.app.screen.query_one(Dialogue)
        dialogue.say("elder", "[red]E[/red]", "[link=x]text[/link] {brace}", ())
        await walk.pilot.pause()
        assert "[link=x]text[/link] {brace}" in text_of(walk.app)
        assert "[red]E[/red]" in text_of(walk.app)


@pytest.mark.parametrize("size", [(60, 20), (80, 24), (200, 60)])
@pytest.mark.parametrize("language", ["zh", "en"])
async def test_every_line_can_be_read_at_any_size(
    tmp_path: Path, size: tuple[int, int], language: str
) -> None:
    """All pages of all lines of the arrival together show every word of them."""
    async with in_hall(tmp_path, "gate", language=language, size=size) as walk:
        wanted, found = "", ""
        while walk.attempt.room == "arrival":
            screen = scene(walk)
            if screen.dialogue.page_done:
                box = [line.strip(" │") for line in text_of(walk.app).splitlines() if "│" in line]
                found += "".join("".join(box).split())
            if screen.dialogue.done and screen.reply is None:
                wanted = "".join(screen.line.text.split())
                assert wanted in found, screen.line.id
                found = "" if not screen.line.choices else found
            await walk.press("enter")
