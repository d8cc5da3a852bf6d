from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fake_session import FakeBridge, make_session
from rich.cells import cell_len
from sealed_records import a_journey
from text_grid import grid, text_of, until
from textual.geometry import Region, Size
from textual.widget import Widget

from engine.capabilities import Capabilities
from engine.messages import Hello, Progress
from game.app import LatencyWallApp
from game.screens.map import MapScreen
from game.screens.profile import LanguageScreen, NameScreen
from game.screens.settings import SettingsScreen
from game.screens.title import TitleScreen
from game.widgets.door import door_region
from game.widgets.runes import SIGNS, RuneField, density, door_rows, light_map


def field_lines(app: LatencyWallApp) -> list[str]:
    field = app.screen.query_one(RuneField)
    return [
        "".join(segment.text for segment in field.render_line(y)) for y in range(field.size.height)
    ]


def places(line: str) -> list[tuple[int, str]]:
    """(first cell, rune) of every rune of a line."""
    found, cell = [], 0
    for char in line:
        if char != " ":
            found.append((cell, char))
        cell += cell_len(char)
    return found


async def test_the_title_comes_first_and_offers_only_what_can_be_done(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en"))
    async with app.run_test(size=(80, 24)):
        assert isinstance(app.screen, TitleScreen)
        assert app.screen.entries() == ("continue", "new", "travellers", "settings", "leave")
        shown = text_of(app)
        for words in ("Continue", "New journey", "Travellers", "Settings", "Leave"):
            assert words in shown
        for words in ("Board", "Practice yard"):
            assert words not in shown


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("size", [(60, 20), (61, 21), (80, 24), (113, 37), (200, 60)])
async def test_no_rune_is_cut_and_none_stands_in_the_door(
    tmp_path: Path, language: str, size: tuple[int, int]
) -> None:
    app = LatencyWallApp(make_session(tmp_path, language))
    async with app.run_test(size=size):
        wall = Size(size[0], size[1] - 2)
        door = door_region(wall, 5)
        assert Region(0, 0, *wall).contains_region(door)
        opening = door_rows(door)
        for y, line in enumerate(field_lines(app)):
            assert cell_len(line) == size[0]
            for cell, rune in places(line):
                assert rune in SIGNS[app.script]
                assert cell % 2 == 0
                if door.y <= y < door.bottom:
                    left, right = opening[y - door.y]
                    assert cell + 2 <= left or cell >= right
        grid(app)


async def test_two_half_seconds_move_every_rune_down_one_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = LatencyWallApp(make_session(tmp_path))
    async with app.run_test(size=(80, 24)):
        field = app.screen.query_one(RuneField)
        field.open_door(None)
        drawn: list[Region] = []
        monkeypatch.setattr(field, "refresh", lambda *regions: drawn.extend(regions))
        before = field_lines(app)
        field.step()
        half = field_lines(app)
        moved = {cell for old, new in zip(before, half, strict=True)
                 for cell, _ in set(places(old)) ^ set(places(new))}  # fmt: skip
        assert moved == {region.x for region in drawn}, "what moved is what is drawn again"
        assert len(moved) == 20, "half of the forty columns"
        field.step()
        assert field_lines(app)[1:] == before[:-1]


def test_debt_thickens_the_wall_between_its_bounds() -> None:
    shares = [density(debt) for debt in (-3, 0, 1, 5, 20, 80, 10_000)]
    assert shares[0] == shares[1] == pytest.approx(0.34)
    assert shares[1:] == sorted(set(shares[1:]))
    assert shares[-1] <= 0.94


async def test_the_wall_holds_as_many_runes_as_the_debt_asks(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path))
    async with app.run_test(size=(120, 40)):
        field = app.screen.query_one(RuneField)
        field.open_door(None)
        for debt in (0, 12, 60):
            field.show("zh", debt)
            lines = field_lines(app)
            here = sum(len(places(line)) for line in lines)
            total = 60 * len(lines)
            # Four standard deviations of a fair draw at the share the debt asks for.
            share = density(debt)
            assert abs(here / total - share) < 4 * (share * (1 - share) / total) ** 0.5


def test_light_is_strongest_at_the_door_and_fades_away_from_it() -> None:
    door = Region(20, 4, 40, 14)
    lit = light_map(60, 30, door)
    row = lit[10]
    assert row[9] == row[30] == 8 or row[9] >= 6
    left = [row[column] for column in range(9, -1, -1)]
    assert left == sorted(left, reverse=True)
    floor = [lit[y][19] for y in range(18, 30)]
    assert floor == sorted(floor, reverse=True) and floor[0] > floor[-1]
    assert not any(map(any, light_map(60, 30, None)))


async def test_runes_drift_unless_motion_is_reduced(tmp_path: Path) -> None:
    session = make_session(tmp_path, reduced_motion=False)
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        field = app.screen.query_one(RuneField)
        assert field.drifting
        await pilot.press("down", "down", "down", "enter")
        assert isinstance(app.screen, SettingsScreen)
        assert not field.drifting, "a title nobody sees needs no drawing"
        session.update_settings(reduced_motion=True)
        await pilot.press("escape")
        assert isinstance(app.screen, TitleScreen) and not field.drifting


async def test_while_the_machine_is_measured_nothing_moves_and_the_line_says_so(
    tmp_path: Path, capabilities: Capabilities
) -> None:
    bridge = FakeBridge(
        events=(
            Hello(0, 1, 123, capabilities, "passive"),
            Progress(1, "calibrating", 3, 12, seconds_left=17.6),
        )
    )
    bridge.hold = asyncio.Event()
    app = LatencyWallApp(make_session(tmp_path, "en", bridge=bridge, reduced_motion=False))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.calm)
        field = app.screen.query_one(RuneField)
        assert app.calm and not field.drifting
        assert "measuring this machine, about 18 s more" in text_of(app)
        assert "===---------  measuring" in text_of(app)
        bridge.hold.set()
        await until(pilot, lambda: "the engine is awake" in text_of(app))
        assert not app.calm and field.drifting
        assert "the engine is awake" in text_of(app)


@pytest.mark.parametrize(
    ("presses", "screen"),
    [(0, MapScreen), (1, NameScreen), (3, SettingsScreen)],
)
async def test_each_line_of_the_door_leads_where_it_says(
    tmp_path: Path, presses: int, screen: type[Widget]
) -> None:
    app = LatencyWallApp(make_session(tmp_path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*["down"] * presses, "enter")
        assert isinstance(app.screen, screen)
        await pilot.press("escape")
        assert isinstance(app.screen, TitleScreen)


async def test_leaving_closes_the_session(tmp_path: Path) -> None:
    bridge = FakeBridge()
    app = LatencyWallApp(make_session(tmp_path, bridge=bridge))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("up", "enter")
        await pilot.pause()
    assert bridge.closed and app.return_code == 0


async def test_a_click_chooses_a_line(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en"))
    async with app.run_test(size=(80, 24)) as pilot:
        lines = grid(app)
        y = next(at for at, line in enumerate(lines) if "Settings" in line)
        await pilot.click(offset=(lines[y].index("Settings") + 2, y))
        assert isinstance(app.screen, SettingsScreen)


async def test_without_a_profile_the_language_is_asked_first(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en", name=None))
    async with app.run_test(size=(80, 24)) as pilot:
        assert isinstance(app.screen, LanguageScreen)
        await pilot.press("1")
        assert isinstance(app.screen, TitleScreen)
        assert app.session.settings.language == "zh"
        assert app.screen.entries() == ("new", "settings", "leave")


async def test_the_debt_is_told_in_the_door(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en", records=a_journey()))
    async with app.run_test(size=(80, 24)):
        # 5 for the wrong choice, 1 for the far dial, 2 for the failed trial, -2 for two crowns.
        # Two of the twelve crowns that the built halls hold are too few for the middle stage.
        assert "Debt 6   Nascent Soul IV, early" in text_of(app)
