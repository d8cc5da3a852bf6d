from __future__ import annotations

from pathlib import Path

import pytest
from fake_session import FakeBridge, make_session
from rich.cells import cell_len
from sealed_records import a_journey, make_record
from text_grid import at_rest, grid, text_of

from game.app import LatencyWallApp
from game.engine_bridge import EngineUnavailable
from game.screens.ledger import LedgerScreen
from game.screens.map import MapScreen
from game.screens.title import TitleScreen
from game.screens.trouble import TroubleScreen
from game.widgets.mountain import Mountain, dot_rows, station_x
from saves.documents import GuessRecord
from story.loader import load_stages, load_text
from story.schema import LANGUAGES

WRONG = GuessRecord("compute", "bandwidth", 0.0, False)


def row_of(app: LatencyWallApp, name: str) -> str:
    """The row of the hall `name`, which another's row may name too: what opens it."""
    return next(line for line in grid(app) if line.lstrip(" .▸•◦").startswith(name)
                and any(word in line for word in ("sealed", "open", "passed")))  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (200, 60)])
async def test_every_hall_stands_on_the_map_from_summit_to_gate(
    tmp_path: Path, language: str, size: tuple[int, int]
) -> None:
    app = LatencyWallApp(make_session(tmp_path, language, records=a_journey()))
    async with app.run_test(size=size) as pilot:
        await pilot.press("enter")
        lines = grid(app)
        rows = []
        for stage in load_stages():
            name = load_text(stage.id, language).name  # type: ignore[arg-type]
            rows.append(max(at for at, line in enumerate(lines[:-2]) if f" {name}" in line[:140]
                        and at < (13 if size[1] < 34 else 99)))  # fmt: skip
        assert rows == sorted(rows, reverse=True)


async def test_a_row_tells_state_crowns_best_figures_and_debt(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en", records=a_journey()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        # crowns time and quality; 12.7 x and 0.63 x as canned; 1 + 2 - 2 of debt.
        assert row_of(app, "Twin Pendulum").split() == [
            "•", "Twin", "Pendulum", "passed", "time", "-", "quality", "-",
            "13", "x", "0.63", "x", "+1",
        ]  # fmt: skip
        assert row_of(app, "Bronze Gate").split()[-4:] == ["passed", "guess:", "compute", "+5"]
        assert "latency debt 6" in grid(app)[0]


async def test_halls_of_memory_tell_what_was_held_and_the_scar(tmp_path: Path) -> None:
    """8,248 tokens and 1.62 x at 96.9 %, as canned; the flood stands beside the pass."""
    records = (
        *a_journey(),
        make_record("abyss", number=20, guess=GuessRecord(60.0, 47.2, 1.27, True)),
        make_record("abyss", "flooded", number=21, guess=GuessRecord(60.0, 47.2, 1.27, None)),
        make_record("paging", number=30, guess=GuessRecord(40.0, 45.4, 1.13, True)),
    )
    for language, scar in (("en", "scar"), ("zh", "刻痕")):
        app = LatencyWallApp(make_session(tmp_path / language, language, records=records))
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("enter")
            lines = grid(app)[:12]
            abyss = next(line for line in lines if "8,248" in line)
            assert scar in abyss and abyss.index("8,248") < abyss.index(scar)
            assert sum(scar in line for line in lines) == 1
            assert any("1.6 x" in line and "97 %" in line for line in lines)


async def test_a_hall_whose_scar_is_still_asked_says_so(tmp_path: Path) -> None:
    passed = make_record("abyss", number=20, guess=GuessRecord(60.0, 47.2, 1.27, True))
    session = make_session(tmp_path, "en", records=(*a_journey(), passed))
    session.stand_at("abyss")
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        assert isinstance(app.screen, MapScreen) and app.screen.stage.id == "abyss"
        assert "open" in row_of(app, "Memory Abyss") and "a scar is still asked" in text_of(app)


async def test_columns_of_the_rows_agree(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "zh", records=a_journey()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        starts = set()
        for line in grid(app)[2:12]:
            state = next(word for word in ("已过", "可入", "封") if word in line)
            starts.add(cell_len(line[: line.index(state)]))
        assert len(starts) == 1


async def test_the_map_opens_where_the_player_stands(tmp_path: Path) -> None:
    session = make_session(tmp_path, "en", records=(make_record("gate", number=1, guess=WRONG),))
    session.stand_at("gate")
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        assert isinstance(app.screen, MapScreen)
        assert app.screen.stage.id == "pendulum", "the gate is passed: the next hall waits"
        await pilot.press("escape")
        assert isinstance(app.screen, TitleScreen)


async def test_a_closed_hall_says_what_opens_it_and_stays_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[str] = []
    app = LatencyWallApp(make_session(tmp_path, "en"))
    monkeypatch.setattr(app, "open_stage", walked.append)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "up")
        assert isinstance(app.screen, MapScreen) and app.screen.stage.id == "pendulum"
        assert "opens after Bronze Gate" in row_of(app, "Twin Pendulum")
        assert "walk in" not in grid(app)[-1]
        await pilot.press("enter")
        assert walked == []
        await pilot.press("home")
        assert app.screen.stage.id == "mirror"
        assert "not yet hewn" in row_of(app, "Mirror of Inference")
        closed = load_text("mirror", "en").closed.split()
        assert " ".join(closed[:6]) in " ".join(text_of(app).split())
        await pilot.press("end", "enter")
        assert walked == ["gate"]


async def test_walking_in_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import game.play

    begun: list[str] = []

    class Run:
        def __init__(self, app: LatencyWallApp, stage_id: str) -> None:
            self.stage_id = stage_id

        def start(self) -> None:
            begun.append(self.stage_id)

    monkeypatch.setattr(game.play, "StageRun", Run)
    session = make_session(tmp_path, "en", records=(make_record("gate", number=1, guess=WRONG),))
    app = LatencyWallApp(session)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "enter")
        assert begun == ["pendulum"]
        assert session.profile is not None and session.profile.stage == "pendulum"


async def test_a_click_chooses_a_hall_and_a_second_walks_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walked: list[str] = []
    app = LatencyWallApp(make_session(tmp_path, "en", records=a_journey()))
    monkeypatch.setattr(app, "open_stage", walked.append)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        lines = grid(app)
        y = next(at for at, line in enumerate(lines) if "Twin Pendulum" in line)
        await pilot.press("home")
        await pilot.click(offset=(10, y))
        assert isinstance(app.screen, MapScreen) and app.screen.stage.id == "pendulum"
        assert walked == []
        await pilot.click(offset=(10, y))
        assert walked == ["pendulum"]


async def test_the_mountain_is_drawn_only_where_there_is_room(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, records=a_journey()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        assert not app.screen.query_one(Mountain).display
        for size, drawn in (((120, 40), True), ((119, 40), False), ((160, 33), False)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert app.screen.query_one(Mountain).display is drawn
            braille = any("\u2800" < char <= "\u28ff" for char in text_of(app))
            assert braille is drawn


def test_the_path_stays_on_the_sheet_and_stations_on_the_path() -> None:
    for width, height in ((34, 36), (60, 50), (120, 60)):
        columns = [station_x(row, width, height) for row in range(height)]
        assert all(0 <= column < width for column in columns)
        assert all(
            abs(here - there) <= width / 8
            for here, there in zip(columns, columns[1:], strict=False)
        )
        rows = dot_rows(width, height)
        assert len(rows) == height and all(len(row) == width for row in rows)
        assert all(0 <= dots < 256 for row in rows for dots in row)
        # Wider below than above: a mountain.
        inked = [sum(1 for dots in row if dots) for row in rows]
        assert sum(inked[: height // 3]) < sum(inked[height // 3 : 2 * height // 3])


async def test_an_engine_that_failed_is_told_and_explained_on_request(tmp_path: Path) -> None:
    bridge = FakeBridge(trouble=EngineUnavailable("worker_died", "it died: [red]signal 9[/]"))
    app = LatencyWallApp(make_session(tmp_path, "en", bridge=bridge))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter")
        await at_rest(pilot)
        assert "the engine did not wake: press R to see why" in text_of(app)
        await pilot.press("r")
        assert isinstance(app.screen, TroubleScreen)
        assert "it died: [red]signal 9[/]" in text_of(app)
        assert "nothing was lost" in text_of(app)
        assert "fetch" not in grid(app)[-1], "the model is not what lacks"
        bridge.trouble = None
        await pilot.press("r")
        await at_rest(pilot)
        assert isinstance(app.screen, MapScreen), "trouble leaves once the engine wakes"
        assert "the engine is awake" in text_of(app)


async def test_r_does_nothing_while_the_engine_is_well(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("enter", "r")
        assert isinstance(app.screen, MapScreen)
        await pilot.press("l")
        assert isinstance(app.screen, LedgerScreen)
