from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_session import make_session
from sealed_records import a_journey
from text_grid import grid, text_of

from game.app import LatencyWallApp
from game.screens.settings import CHOICES, SettingsScreen
from game.screens.title import TitleScreen
from saves.store import Store


async def open_settings(app: LatencyWallApp, pilot: Any) -> SettingsScreen:
    app.open_settings()
    await pilot.pause()
    assert isinstance(app.screen, SettingsScreen)
    return app.screen


@pytest.mark.parametrize("setting", list(CHOICES))
async def test_a_setting_goes_round_and_is_kept_at_each_step(tmp_path: Path, setting: str) -> None:
    session = make_session(tmp_path, "en", name="Ada")
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await open_settings(app, pilot)
        await pilot.press(*["down"] * list(CHOICES).index(setting))
        assert screen.setting == setting
        start = getattr(session.settings, setting)
        seen = []
        for _ in CHOICES[setting]:
            await pilot.press("right")
            now = getattr(session.settings, setting)
            assert getattr(Store(tmp_path).load("Ada").settings, setting) == now
            seen.append(now)
        assert seen[-1] == start and set(seen) == set(CHOICES[setting])
        await pilot.press("left")
        assert getattr(session.settings, setting) == seen[-2]


async def test_the_present_value_stands_in_brackets(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en", name="Ada", text_speed=40))
    async with app.run_test(size=(80, 24)) as pilot:
        await open_settings(app, pilot)
        row = next(line for line in grid(app) if "Text speed" in line)
        assert row.split() == ["Text", "speed", "slow", "[even]", "fast", "at", "once"]


async def test_a_value_set_elsewhere_is_shown_as_it_is(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en", name="Ada", text_speed=333))
    async with app.run_test(size=(80, 24)) as pilot:
        await open_settings(app, pilot)
        assert "[333]" in text_of(app)
        await pilot.press("down", "right")
        assert app.session.settings.text_speed == 20


async def test_a_click_on_a_value_takes_it(tmp_path: Path) -> None:
    session = make_session(tmp_path, "en", name="Ada")
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_settings(app, pilot)
        lines = grid(app)
        y = next(at for at, line in enumerate(lines) if "Text speed" in line)
        await pilot.click(offset=(lines[y].index("fast") + 1, y))
        assert session.settings.text_speed == 80


async def test_language_changes_this_screen_at_once(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en", name="Ada"))
    async with app.run_test(size=(80, 24)) as pilot:
        await open_settings(app, pilot)
        await pilot.press("enter")
        assert app.session.settings.language == "zh"
        assert "减少动态" in text_of(app)


def colours_on(app: LatencyWallApp) -> set[str]:
    """Every colour name or number that would be sent to the terminal."""
    found = set()
    for strip in app.screen._compositor.render_strips(app.screen.size):
        for _, style, _ in strip:
            if style is not None:
                found |= {colour.name for colour in (style.color, style.bgcolor) if colour}
    return found


async def test_without_colour_no_colour_is_sent_and_marks_remain(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en", records=a_journey()))
    async with app.run_test(size=(80, 24)) as pilot:
        assert len(colours_on(app)) > 5
        await open_settings(app, pilot)
        await pilot.press("up", "right")
        assert app.session.settings.colour == "none"
        await pilot.pause()
        assert colours_on(app) == set()
        assert "▸ Colour" in text_of(app) and "[none]" in text_of(app)
        await pilot.press("escape")
        assert isinstance(app.screen, TitleScreen)
        await pilot.pause()
        assert colours_on(app) == set()
        await pilot.press("enter")
        await pilot.pause()
        assert colours_on(app) == set()
        row = next(line for line in grid(app) if "Twin Pendulum" in line)
        assert "passed" in row and "time - " in row


async def test_no_color_in_the_environment_has_the_same_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = LatencyWallApp(make_session(tmp_path, "en"))
    async with app.run_test(size=(80, 24)):
        assert colours_on(app) == set()


async def test_an_empty_no_color_asks_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    app = LatencyWallApp(make_session(tmp_path, "en"))
    async with app.run_test(size=(80, 24)):
        assert colours_on(app)
