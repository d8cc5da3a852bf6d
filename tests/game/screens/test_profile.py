from __future__ import annotations

from pathlib import Path

import pytest
from fake_session import make_session
from text_grid import grid, text_of
from textual.widgets import Input, OptionList

from game.app import LatencyWallApp
from game.screens.map import MapScreen
from game.screens.profile import LanguageScreen, NameScreen, TakeOutScreen, TravellersScreen
from game.screens.title import TitleScreen
from game.session import Session
from saves.store import Store


async def test_a_first_start_goes_from_the_language_to_the_map(tmp_path: Path) -> None:
    session = make_session(tmp_path, "en", name=None)
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        assert isinstance(app.screen, LanguageScreen)
        shown = text_of(app)
        assert "中   文" in shown and "E n g l i s h" in shown
        await pilot.press("up", "enter")
        assert isinstance(app.screen, TitleScreen)
        await pilot.press("enter")
        assert isinstance(app.screen, NameScreen)
        app.screen.query_one(Input).value = "林默"
        await pilot.press("enter")
        assert isinstance(app.screen, MapScreen)
        assert session.profile is not None and session.profile.name == "林默"
        assert session.profile.settings.language == "zh"
    kept = Store(tmp_path).load("林默")
    assert kept.settings.language == "zh"


async def test_the_language_may_be_chosen_by_its_number_or_a_click(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "zh", name=None))
    async with app.run_test(size=(80, 24)) as pilot:
        lines = grid(app)
        y = next(at for at, line in enumerate(lines) if "E n g l i s h" in line)
        await pilot.click(offset=(38, y))
        assert isinstance(app.screen, TitleScreen)
        assert app.session.settings.language == "en"


@pytest.mark.parametrize("locale", ["zh_CN.UTF-8", "en_GB.UTF-8"])
async def test_the_language_of_the_locale_is_offered_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locale: str
) -> None:
    monkeypatch.setenv("LANG", locale)
    app = LatencyWallApp(make_session(tmp_path, "en", name=None))
    async with app.run_test(size=(80, 24)):
        assert app.session.settings.language == locale[:2]


@pytest.mark.parametrize("letter", ["?", "l", "h", "L", "s"])
async def test_in_a_name_every_printable_key_is_a_letter(tmp_path: Path, letter: str) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en"))
    async with app.run_test(size=(80, 24)) as pilot:
        app.open_new_journey()
        await pilot.pause()
        await pilot.press("A", letter)
        assert isinstance(app.screen, NameScreen)
        assert app.screen.query_one(Input).value == f"A{letter}"


@pytest.mark.parametrize(
    ("language", "name", "words"),
    [
        ("en", "   ", "at least one sign"),
        ("zh", "\u200b", "总得有一个看得见的字"),
        ("en", "n" * 25, "24 cells at most"),
        ("zh", "名" * 13, "最多 24 格"),
        ("zh", "林默", "已经有人叫“林默”"),
        ("en", "ADA", 'Someone is called "ADA" already'),
    ],
)
async def test_a_name_that_cannot_be_is_refused_in_place_and_in_words(
    tmp_path: Path, language: str, name: str, words: str
) -> None:
    session = make_session(tmp_path, language, name="林默" if language == "zh" else "Ada")
    before = session.profiles()
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        app.open_new_journey()
        await pilot.pause()
        app.screen.query_one(Input).value = name
        await pilot.press("enter")
        assert isinstance(app.screen, NameScreen)
        assert words in text_of(app)
        await pilot.press("x")
        assert words not in text_of(app), "a new letter takes the complaint away"
    assert session.profiles() == before


@pytest.mark.parametrize("name", ["[bold red]x[/]", "[@click=app.leave]go[/]", "a[/b", "{debt}"])
async def test_a_name_is_never_read_as_markup(tmp_path: Path, name: str) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en", name=name))
    async with app.run_test(size=(80, 24)) as pilot:
        app.open_travellers()
        await pilot.pause()
        assert name in text_of(app)
        await pilot.press("d")
        assert isinstance(app.screen, TakeOutScreen)
        assert f'Strike "{name}" off the roll?' in text_of(app)
        await pilot.press("escape", "escape", "enter")
        assert isinstance(app.screen, MapScreen)
        assert name in text_of(app)


async def test_control_codes_in_a_pasted_name_do_not_reach_the_screen(tmp_path: Path) -> None:
    session = make_session(tmp_path, "en", name=None)
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "enter")
        app.screen.query_one(Input).value = "\x1b[31mRed\x07\u202eder"
        await pilot.press("enter")
        assert isinstance(app.screen, MapScreen)
        assert session.profile is not None and session.profile.name == "Redder"
        shown = text_of(app)
        assert "Redder" in shown and "\x1b" not in shown and "\u202e" not in shown


def three(tmp_path: Path) -> Session:
    session = make_session(tmp_path, "zh", name="林默")
    session.update_settings(language="en")
    session.create_profile("Ada")
    session.use_profile("林默")
    session.update_settings(language="zh")
    return session


async def test_travelling_on_as_another_brings_their_language(tmp_path: Path) -> None:
    session = three(tmp_path)
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        app.open_travellers()
        await pilot.pause()
        options = app.screen.query_one(OptionList)
        names = [profile.name for profile in session.profiles()]
        assert options.highlighted == names.index("林默"), "it opens on the one who plays"
        options.highlighted = names.index("Ada")
        await pilot.press("enter")
        assert isinstance(app.screen, TitleScreen)
        assert session.profile is not None and session.profile.name == "Ada"
        assert "Continue" in text_of(app)


async def test_only_the_one_who_plays_is_renamed_and_keeps_the_ledger(tmp_path: Path) -> None:
    session = three(tmp_path)
    assert session.profile is not None
    key = session.profile.key
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        app.open_travellers()
        await pilot.pause()
        names = [profile.name for profile in session.profiles()]
        app.screen.query_one(OptionList).highlighted = names.index("Ada")
        await pilot.pause()
        assert "改名" not in grid(app)[-1]
        await pilot.press("r")
        assert isinstance(app.screen, TravellersScreen)
        app.screen.query_one(OptionList).highlighted = names.index("林默")
        await pilot.pause()
        assert "改名" in grid(app)[-1]
        await pilot.press("r")
        assert isinstance(app.screen, NameScreen)
        assert app.screen.query_one(Input).value == "林默"
        app.screen.query_one(Input).value = "林不默"
        await pilot.press("enter")
        assert isinstance(app.screen, TravellersScreen)
        assert "林不默" in text_of(app)
    assert session.profile.name == "林不默" and session.profile.key == key


async def test_striking_off_needs_a_deliberate_key(tmp_path: Path) -> None:
    session = three(tmp_path)
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        app.open_travellers()
        await pilot.pause()
        names = [profile.name for profile in session.profiles()]
        app.screen.query_one(OptionList).highlighted = names.index("Ada")
        for key in ("escape", "enter", "n"):
            await pilot.press("d")
            assert isinstance(app.screen, TakeOutScreen)
            await pilot.press(key)
            assert "Ada" in {profile.name for profile in session.profiles()}
            if isinstance(app.screen, TakeOutScreen):
                await pilot.press("escape")
        await pilot.press("d", "y")
        assert isinstance(app.screen, TravellersScreen)
        assert {profile.name for profile in session.profiles()} == {"林默"}
        assert session.profile is not None and session.profile.name == "林默"


async def test_after_the_last_traveller_is_struck_off_the_title_begins_anew(
    tmp_path: Path,
) -> None:
    session = make_session(tmp_path, "en", name="Ada")
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        app.open_travellers()
        await pilot.pause()
        await pilot.press("d", "y", "escape")
        assert isinstance(app.screen, TitleScreen)
        assert app.screen.entries() == ("new", "settings", "leave")
        assert session.profile is None
