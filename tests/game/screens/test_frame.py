from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from fake_session import FakeBridge, make_session
from rich.cells import cell_len
from sealed_records import a_journey
from text_grid import SIZES, at_rest, check_snapshot, grid, text_of, until
from textual.geometry import Size

from game.app import LatencyWallApp, terminal_is_ascii
from game.outcome import SessionInputError
from game.screens.base import HallScreen
from game.screens.too_small import TooSmall
from game.theme import INK, VARIABLES
from game.waking import EngineState
from game.widgets.keys import KeyHint, fitting
from story.loader import load_interface
from story.schema import LANGUAGES, Language

Open = Callable[[LatencyWallApp], None]
SCREENS: dict[str, Open] = {
    "title": lambda app: None,
    "map": lambda app: app.open_map(),
    "ledger": lambda app: app.open_ledger(),
    "settings": lambda app: app.open_settings(),
    "name": lambda app: app.open_new_journey(),
    "travellers": lambda app: app.open_travellers(),
    "trouble": lambda app: app.open_trouble(),
    "help": lambda app: app.open_help(cast(HallScreen[Any], app.screen)),
}
CJK = re.compile(r"[\u3400-\u9fff]")


def journey(home: Path, language: Language, trouble: bool = False) -> LatencyWallApp:
    bridge = FakeBridge(trouble=SessionInputError("no such model") if trouble else None)
    name = "林默" if language == "zh" else "Ada"
    return LatencyWallApp(
        make_session(home, language, name=name, records=a_journey(), bridge=bridge)
    )


@pytest.mark.parametrize("name", [name for name in SCREENS if name != "help"])
async def test_f2_changes_every_word_of_every_screen(tmp_path: Path, name: str) -> None:
    app = journey(tmp_path, "zh", trouble=name == "trouble")
    app.session.rename_profile("Mo")
    async with app.run_test(size=(100, 36)) as pilot:
        await at_rest(pilot)
        SCREENS[name](app)
        await at_rest(pilot)
        chinese = grid(app)
        assert sum(bool(CJK.search(line)) for line in chinese) >= 3
        await pilot.press("f2")
        await at_rest(pilot)
        for line in grid(app):
            # The names of the game and of the other language are the same in both.
            bare = line.replace("延 迟 之 壁", "").replace("中文", "")
            assert not CJK.search(bare), line
        await pilot.press("f2")
        await at_rest(pilot)
        assert grid(app) == chinese


async def test_screens_under_the_top_one_change_their_words_too(tmp_path: Path) -> None:
    app = journey(tmp_path, "zh")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "s")
        await pilot.press("f2", "escape")
        await pilot.pause()
        assert "Hall of Inference" in text_of(app)
        await pilot.press("escape")
        await pilot.pause()
        assert "Continue" in text_of(app)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("size", [(60, 20), (141, 45)])
async def test_no_line_is_wider_than_the_terminal(
    tmp_path: Path, language: Language, size: tuple[int, int]
) -> None:
    app = journey(tmp_path, language, trouble=True)
    async with app.run_test(size=size) as pilot:
        for name, open_screen in SCREENS.items():
            if name == "help":
                continue
            open_screen(app)
            await pilot.pause()
            lines = grid(app)
            assert all(cell_len(line) <= size[0] for line in lines), name
            assert any("F2" in line for line in lines[-1:]) or size[0] < 80, name
            while len(app.screen_stack) > 1:
                await app.pop_screen()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", ["title", "map", "ledger", "settings", "name"])
async def test_the_screen_looks_as_it_did(
    tmp_path: Path, name: str, language: Language, size: tuple[int, int]
) -> None:
    app = journey(tmp_path, language)
    async with app.run_test(size=size) as pilot:
        await at_rest(pilot)
        SCREENS[name](app)
        await at_rest(pilot)
        check_snapshot(app, f"{name}_{language}_{size[0]}x{size[1]}")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_first_question_looks_as_it_did(tmp_path: Path, language: Language) -> None:
    app = LatencyWallApp(make_session(tmp_path, language, name=None))
    async with app.run_test(size=(80, 24)):
        check_snapshot(app, f"language_{language}_80x24")


async def test_a_terminal_too_small_is_told_so_in_both_languages(tmp_path: Path) -> None:
    app = journey(tmp_path, "en")
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        await at_rest(pilot)
        before = text_of(app)
        for size in ((59, 24), (80, 19), (20, 10), (1, 1)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert app.screen.query_one(TooSmall).display
            if size[0] >= 40:
                shown = text_of(app)
                assert f"{size[0]} x {size[1]}" in shown and "60 x 20" in shown
                assert "终端太小" in shown and "too small" in shown
                assert "Bronze Gate" not in shown, "it covers all"
            grid(app)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert text_of(app) == before


async def test_a_screen_opened_in_a_small_terminal_is_covered_too(tmp_path: Path) -> None:
    app = journey(tmp_path, "en")
    async with app.run_test(size=(50, 15)) as pilot:
        assert "too small" in text_of(app)
        app.open_settings()
        await pilot.pause()
        assert "too small" in text_of(app) and "Text speed" not in text_of(app)


async def test_ctrl_q_leaves_from_anywhere_even_from_a_name(tmp_path: Path) -> None:
    for name in ("title", "map", "name", "trouble"):
        bridge = FakeBridge()
        app = LatencyWallApp(make_session(tmp_path / name, "en", bridge=bridge))
        async with app.run_test(size=(80, 24)) as pilot:
            SCREENS[name](app)
            await pilot.pause()
            await pilot.press("ctrl+q")
            await pilot.pause()
        assert bridge.closed and app.return_code == 0


async def test_ctrl_c_does_not_leave_and_says_what_does(tmp_path: Path) -> None:
    app = journey(tmp_path, "en")
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert app.is_running and "Ctrl+Q leaves" in text_of(app)


async def test_a_session_that_will_not_close_does_not_hold_the_player(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    monkeypatch.setattr("game.app._GOODBYE_SECONDS", 0.05)
    app = journey(tmp_path, "en")

    async def never() -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(app.session, "close", never)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+q")
        await until(pilot, lambda: not app.is_running)


async def test_a_damaged_save_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = journey(tmp_path, "en")
    told = [("set aside as [red]x[/]",), ()]
    monkeypatch.setattr(app.session, "take_notices", lambda: told.pop(0) if told else ())
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: "set aside as [red]x[/]" in text_of(app))


async def test_a_new_screen_of_a_hall_takes_the_old_ones_place_and_not_the_top_one(
    tmp_path: Path,
) -> None:
    app = journey(tmp_path, "en")
    old, new = HallScreen[None](), HallScreen[None]()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        await at_rest(pilot)
        app.push_screen(old)
        await pilot.pause()
        await pilot.press("question_mark")
        await pilot.pause()
        app.open_ledger()
        await pilot.pause()
        assert len(app.screen_stack) == 5
        app.switch_screen(new)
        await at_rest(pilot)
        assert app.screen is new and old not in app.screen_stack
        assert [type(one).__name__ for one in app.screen_stack] == [
            "TitleScreen", "MapScreen", "HallScreen",
        ]  # fmt: skip


async def test_an_engine_a_trial_has_woken_is_known_on_the_way_back(tmp_path: Path) -> None:
    bridge = FakeBridge(trouble=SessionInputError("gone"))
    app = LatencyWallApp(make_session(tmp_path, "en", bridge=bridge))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        await until(pilot, lambda: app.engine_state.phase == "failed")
        app.open_settings()
        await pilot.pause()
        bridge.awake = True
        await pilot.press("escape")
        await pilot.pause()
        assert "the engine is awake" in text_of(app)


def hint(name: str, words: str) -> KeyHint:
    return KeyHint(name, name[0].upper(), words, name)


def test_a_narrow_strip_drops_the_common_keys_first_and_help_last() -> None:
    hints = [hint(name, name) for name in ("go_on", "tune", "hint", "ledger", "help", "language",
                                           "leave")]  # fmt: skip
    gone = []
    before = {one.id for one in hints}
    for width in range(80, -1, -1):
        kept, gap = fitting(hints, width)
        assert sum(one.cells for one in kept) + gap * max(len(kept) - 1, 0) <= width
        now = {one.id for one in kept}
        gone += sorted(before - now)
        before = now
    assert gone[:5] == ["leave", "language", "ledger", "hint", "help"]
    assert set(gone[5:]) == {"go_on", "tune"}


async def test_a_key_on_the_strip_can_be_clicked(tmp_path: Path) -> None:
    app = journey(tmp_path, "en")
    async with app.run_test(size=(80, 24)) as pilot:
        line = grid(app)[-1]
        await pilot.click(offset=(line.index("F2") + 1, 23))
        await pilot.pause()
        assert app.session.settings.language == "zh"


async def test_common_keys_are_the_same_on_every_screen(tmp_path: Path) -> None:
    app = journey(tmp_path, "en", trouble=True)
    common = {"go_on": "Enter", "back": "Esc", "hint": "H", "ledger": "L", "help": "?",
              "language": "F2", "leave": "Ctrl+Q"}  # fmt: skip
    async with app.run_test(size=(100, 36)) as pilot:
        for open_screen in SCREENS.values():
            open_screen(app)
            await pilot.pause()
            assert isinstance(app.screen, HallScreen)
            shown = {one.id: one.key for one in app.screen.key_hints()}
            for binding, key in shown.items():
                assert common.get(binding, key) == key
            assert {"language", "leave"} <= shown.keys()


@pytest.mark.parametrize(
    ("term", "lc_all", "lang", "ascii_only"),
    [
        ("xterm-256color", None, "C.UTF-8", False),
        ("xterm-256color", None, "zh_CN.utf8", False),
        ("xterm-256color", "C", "en_US.UTF-8", True),
        ("xterm", None, "POSIX", True),
        ("xterm", None, "en_US.ISO-8859-1", True),
        ("linux", None, "en_US.UTF-8", True),
    ],
)
def test_an_ascii_terminal_is_known_by_its_name_or_locale(
    monkeypatch: pytest.MonkeyPatch, term: str, lc_all: str | None, lang: str, ascii_only: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("LANG", lang)
    if lc_all is not None:
        monkeypatch.setenv("LC_ALL", lc_all)
    assert terminal_is_ascii() is ascii_only


async def test_in_an_ascii_terminal_every_english_screen_is_ascii(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "linux")
    app = journey(tmp_path, "en", trouble=True)
    async with app.run_test(size=(120, 40)) as pilot:
        for name, open_screen in SCREENS.items():
            open_screen(app)
            await pilot.pause()
            # A scroll bar is Textual's own and stands apart from the text.
            shown = re.sub(r"[\u2580-\u259f]", "", text_of(app))
            assert shown.isascii(), (name, {char for char in shown if not char.isascii()})


@pytest.mark.parametrize(
    "state",
    [
        EngineState("asleep"),
        EngineState("waking"),
        EngineState("loading", 0.5),
        EngineState("calibrating"),
        EngineState("calibrating", 0.2, 0.4),
        EngineState("awake"),
        EngineState("failed", trouble="x"),
    ],
)
async def test_each_state_of_the_engine_has_words_that_fit(
    tmp_path: Path, state: EngineState
) -> None:
    for language in LANGUAGES:
        app = LatencyWallApp(make_session(tmp_path / language, language))
        async with app.run_test(size=(80, 24)) as pilot:
            await at_rest(pilot)
            app._show_engine(state)
            await pilot.pause()
            words = app.engine_words()
            assert "[" not in words and words in grid(app)[-2]


def luminance(colour: str) -> float:
    """WCAG 2.2 relative luminance of #rrggbb."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(
    ("name", "least"),
    [("silver", 7.0), ("mist", 4.5), ("bronze", 4.5), ("bronze-bright", 7.0),
     ("cyan-bright", 4.5), ("violet", 4.5), ("faint", 3.0)],
)  # fmt: skip
def test_what_is_read_stands_out_from_the_ink(name: str, least: float) -> None:
    contrast = (luminance(VARIABLES[name]) + 0.05) / (luminance(INK) + 0.05)
    assert contrast >= least


def test_both_languages_have_the_same_words() -> None:
    chinese, english = (load_interface(language).keys for language in LANGUAGES)
    assert chinese == english


def test_the_least_size_is_told_by_one_rule() -> None:
    from game.screens.too_small import too_small

    assert not too_small(Size(60, 20))
    assert too_small(Size(59, 20)) and too_small(Size(60, 19))
