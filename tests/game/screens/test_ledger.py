from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from fake_session import make_session
from sealed_records import a_journey, make_record
from text_grid import grid, text_of
from textual.widgets import OptionList

from game.app import LatencyWallApp
from game.screens.ledger import LedgerScreen, RecordScreen
from game.widgets.debt_curve import debt_curve
from game.widgets.ink import plain
from game.widgets.record_detail import local_time
from saves.documents import Record


async def test_records_stand_newest_first_with_what_they_did_to_the_debt(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en", records=a_journey()))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("l")
        assert isinstance(app.screen, LedgerScreen)
        rows = [line.split() for line in grid(app) if "01-05" in line]
        assert rows == [
            ["01-05", "09:12", "Twin", "Pendulum", "18", "/", "34", "off", "passed", "-2"],
            ["01-05", "09:07", "Twin", "Pendulum", "18", "/", "34", "off", "failed", "+3"],
            ["01-05", "09:01", "Bronze", "Gate", "compute", "/", "bandwidth", "off", "passed",
             "+5"],
        ]  # fmt: skip
        assert "latency debt 6" in grid(app)[0] and "8 at its most" in grid(app)[0]


async def test_one_record_lies_open_with_all_that_was_kept(tmp_path: Path) -> None:
    session = make_session(tmp_path, "en", records=a_journey())
    app = LatencyWallApp(session)
    async with app.run_test(size=(100, 70)) as pilot:
        await pilot.press("l", "enter")
        assert isinstance(app.screen, RecordScreen)
        shown = text_of(app)
        digest = session.records()[-1].digest
        for words in (
            "2026-01-05 09:12:00", "passed", "8 -> 6", "off by", "1.9 x", "schedule.batch",
            "bfloat16", "12.7  [12.6, 12.8]  holds", "0.63  [0.625, 0.635]  holds", "naive",
            "Canned CPU", f"sha256 {digest}"[:70],
        ):  # fmt: skip
            assert words in shown, words
        await pilot.press("escape")
        assert isinstance(app.screen, LedgerScreen)
        await pilot.press("l")
        assert not isinstance(app.screen, LedgerScreen), "L shuts what L opened"


async def test_at_great_width_the_chosen_record_lies_beside_the_list(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en", records=a_journey()))
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.press("l")
        assert "float32" not in text_of(app)
        await pilot.press("down")
        assert app.screen.query_one(OptionList).highlighted == 1
        assert "float32" in text_of(app), "the failed build was the default one"


async def test_an_empty_ledger_says_so_and_opens_nothing(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("l")
        assert "The ledger is blank" in text_of(app)
        assert "lay open" not in grid(app)[-1]
        await pilot.press("enter")
        assert isinstance(app.screen, LedgerScreen)


def foreign() -> Record:
    """A record as a hostile or a later program might have written it."""
    record = make_record("pendulum", "pass", number=3)
    result = dict(record.result or {})
    result["kernel_path"] = {"linear": "[bold red]x[/] \x1b[31mred\x1b[0m\x07", "a\nb": "[/]"}
    result["environment"] = {"model_name": "\u202eevil", "threads": 2}
    verdict = {"word": "marvellous", "later": True}
    build: dict[str, int | str] = {"[link=x]k[/]": "v\x1b]0;title\x07"}
    return msgspec.structs.replace(
        record, stage="tomb[/]", result=result, verdict=verdict, build=build
    )


async def test_foreign_text_is_shown_and_never_obeyed(tmp_path: Path) -> None:
    app = LatencyWallApp(make_session(tmp_path, "en", records=(foreign(),)))
    async with app.run_test(size=(80, 40)) as pilot:
        await pilot.press("l")
        assert "tomb[/]" in text_of(app)
        await pilot.press("enter")
        assert isinstance(app.screen, RecordScreen)
        shown = text_of(app)
        assert "[bold red]x[/] red" in shown and "[link=x]k[/]" in shown and "a b" in shown
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)


async def test_a_practice_record_is_kept_and_charges_nothing(tmp_path: Path) -> None:
    records = (make_record("gate", "pass", number=2, crowns=()),)
    app = LatencyWallApp(make_session(tmp_path, "en", records=records))
    async with app.run_test(size=(80, 30)) as pilot:
        await pilot.press("l")
        row = next(line for line in grid(app) if "01-05" in line)
        assert "practice, no bet" in row and row.rstrip().endswith("-")
        await pilot.press("enter")
        assert "the ledger does not count it" in text_of(app)


@pytest.mark.parametrize(
    ("debts", "first_row", "last_row"),
    [
        ((0,), None, None),  # one point makes no line
        ((0, 5), 2, 0),
        ((0, 5, 8, 6), 2, 0),  # 6 of 8 lies in the upper third
        ((0, 9, 1), 2, 2),
        (tuple(range(400)), 2, 0),
        ((0, 0, 0), 2, 2),
    ],
)
def test_the_curve_begins_at_nothing_owed_and_ends_at_the_debt(
    debts: tuple[int, ...], first_row: int | None, last_row: int | None
) -> None:
    lines = [plain(line) for line in debt_curve(debts, 20, 3, plain=True)]
    assert [len(line) for line in lines] == [20, 20, 20]
    first = [row for row, line in enumerate(lines) if line[0] != " "]
    last = [row for row, line in enumerate(lines) if line[-1] != " "]
    assert (
        max(first, default=None),
        (last or [None])[-1 if debts[-1] < max(debts) / 2 else 0],
    ) == (
        first_row,
        last_row,
    )


def test_a_time_that_is_no_time_is_shown_as_it_came() -> None:
    assert local_time("2026-01-05T09:07:00+00:00", "%H:%M") == "09:07"
    assert local_time("yesterday\x1b[2J", "%H:%M") == "yesterday"
