from __future__ import annotations

from pathlib import Path

import pytest
from fake_session import make_session
from rich.cells import cell_len
from text_grid import grid, text_of, until

from game.app import LatencyWallApp
from game.screens.help import EVERYWHERE, TERMS, HelpScreen
from game.screens.map import MapScreen
from story.loader import load_interface
from story.schema import LANGUAGES, Language


@pytest.mark.parametrize("language", LANGUAGES)
async def test_help_names_every_common_key_and_every_term(
    tmp_path: Path, language: Language
) -> None:
    app = LatencyWallApp(make_session(tmp_path, language))
    async with app.run_test(size=(110, 60)) as pilot:
        await pilot.press("enter", "question_mark")
        assert isinstance(app.screen, HelpScreen)
        shown = text_of(app)
        for key in ("Enter", "Esc", "H ", "L ", "? ", "F2", "Ctrl+Q"):
            assert any(line.strip().startswith(key) for line in shown.splitlines()), key
        for term in ("TTFT", "TPOT", "prefill", "decode", "KV"):
            assert any(line.strip().startswith(term) for line in shown.splitlines()), term
        interface = load_interface(language)
        assert interface.text("settings.heading").lower() in shown.lower(), "the map's own key S"
        for key in (*EVERYWHERE, *TERMS):
            assert f"help.key.{key}" in interface or f"help.term.{key}" in interface


@pytest.mark.parametrize("key", ["escape", "question_mark", "fullwidth_question_mark"])
async def test_help_returns_to_where_it_was_asked(tmp_path: Path, key: str) -> None:
    app = LatencyWallApp(make_session(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "question_mark")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press(key)
        assert isinstance(app.screen, MapScreen)


async def test_help_scrolls_to_its_end_by_keyboard(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en"))
    async with app.run_test(size=(60, 20)) as pilot:
        await pilot.press("question_mark")
        last = "close guesses and new crowns repay it"
        assert last not in " ".join(text_of(app).split())
        await pilot.press("end")
        await until(pilot, lambda: "repay it" in " ".join(text_of(app).split()))
        assert all(cell_len(line) <= 60 for line in grid(app))
