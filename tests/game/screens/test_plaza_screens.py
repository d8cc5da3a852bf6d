"""The screens of the Plaza, in both languages and at both sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from canned_drafts import make_drafted
from canned_engine import CannedEngine
from hall_walk import Walk, in_hall
from text_grid import SIZES, check_snapshot, grid, text_of

from engine.domains import Value
from game.screens.hall_screen import PIECES, InHallScreen
from game.widgets.plaza_piece import PlazaPiece

SELF: dict[str, Value] = {"draft.kind": "self4", "draft.length": 4}
LOOK_UP: dict[str, Value] = {"draft.kind": "ngram", "draft.length": 8}
WORDS = ("piece", "knob", "metric", "forge", "phase", "trial", "verdict", "goal", "detail", "map")


@pytest.fixture(autouse=True)
def cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "cache"))


def drafting_engine() -> CannedEngine:
    return CannedEngine(lambda command: make_drafted(dict(command.spec.build)))


async def sealed(walk: Walk) -> None:
    """0.6 of what is drafted will stand."""
    await walk.to("guess")
    await walk.press("0", ".", "6", "enter", "enter")
    await walk.to("forge")


async def tried(walk: Walk, build: dict[str, Value]) -> None:
    if walk.attempt.room != "forge":
        await walk.to("forge")
    walk.run.set_build(build)
    await walk.press("enter")
    await walk.settle()
    assert walk.attempt.room == "verdict", walk.attempt.room


async def look(walk: Walk, name: str, changes: list[str]) -> None:
    """Compare the screen with its snapshot; what differs is told once all were compared."""
    await walk.pilot.pause()
    size, language = walk.app.size, walk.session.settings.language
    shown = text_of(walk.app)
    missing = [word for word in WORDS if f"[{word}." in shown]
    assert not missing, f"words are missing: {missing}\n{shown}"
    try:
        check_snapshot(walk.app, f"plaza_{name}_{language}_{size.width}x{size.height}")
    except AssertionError as error:
        changes.append(str(error))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_the_plaza_looks_as_it_did(
    tmp_path: Path, language: str, size: tuple[int, int]
) -> None:
    changes: list[str] = []
    engine = drafting_engine()
    async with in_hall(tmp_path, "plaza", engine, language, size) as walk:
        await walk.to("guess")
        await look(walk, "guess", changes)
        await sealed(walk)
        await tried(walk, LOOK_UP)
        await look(walk, "verdict", changes)
        await walk.to("forge")
        walk.run.set_build(SELF)
        engine.hold = True
        await walk.begin_trial()
        await look(walk, "trial", changes)
        engine.hold = False
        engine.release()
        await walk.settle()
        await walk.press("v")
        await look(walk, "view", changes)
        await walk.press("v")
        await look(walk, "other_view", changes)
        await walk.press("d")
        if size == SIZES[0]:  # where there is room for more, the record's digest stands there
            await look(walk, "details", changes)
    assert not changes, "\n\n".join(changes)


async def test_before_the_seal_the_formula_alone_is_shown(tmp_path: Path) -> None:
    """Not even a trial on record says what was accepted; after it, all of them do."""
    assert PIECES["plaza"] is PlazaPiece
    async with in_hall(tmp_path, "plaza", drafting_engine()) as walk:
        await walk.session.trial("plaza", SELF)
        await walk.to("guess")
        shown = text_of(walk.app)
        assert "not sealed" in shown and "r 0.9" in shown and "V other view" not in shown
        assert "62" not in shown and "(o)" not in shown
        await sealed(walk)
        await tried(walk, LOOK_UP)
        await walk.press("v")
        shown = text_of(walk.app)
        assert "Trials 2." in shown and " o " in shown and "(x)" in shown


async def test_the_cost_by_formula_follows_the_build(tmp_path: Path) -> None:
    """A look-up reads no weights; the model at 4 bits about a sixth of its float32 ones."""
    async with in_hall(tmp_path, "plaza", drafting_engine()) as walk:
        await walk.to("guess")
        screen = walk.app.screen
        assert isinstance(screen, InHallScreen)
        walk.attempt.build.update(LOOK_UP)
        assert screen._draft_cost(None) == 0.0
        walk.attempt.build.update(SELF)
        cost = screen._draft_cost(None)
        assert cost is not None and 1 / 8 < cost < 1 / 4
        walk.attempt.build["draft.kind"] = "trained"  # none ships with this engine
        assert screen._draft_cost(None) is None


async def test_the_second_view_and_the_details_tell_what_became_of_each_word(
    tmp_path: Path,
) -> None:
    async with in_hall(tmp_path, "plaza", drafting_engine(), size=(120, 50)) as walk:
        await sealed(walk)
        await tried(walk, SELF)
        await walk.press("v")
        shown = text_of(walk.app)
        assert "who lived [alone] <on> the edge" in shown and "a story: 24 of 48" in shown
        await walk.press("d")
        shown = text_of(walk.app)
        assert "1,992 of 3,200 tokens stood, 62 %" in shown and "By place" in shown
        assert "8 answers, the same token by token" in shown and "[alone] <on>" in shown


@pytest.mark.parametrize("size", [(60, 20), (100, 30), (200, 60)], ids=str)
async def test_no_screen_breaks_at_other_sizes(tmp_path: Path, size: tuple[int, int]) -> None:
    async with in_hall(tmp_path, "plaza", drafting_engine(), size=size) as walk:
        await sealed(walk)
        assert any("Esc" in line for line in grid(walk.app)[-2:])
        await tried(walk, SELF)
        for key in ("v", "v", "d"):
            await walk.press(key)
            assert any("Esc" in line for line in grid(walk.app)[-2:]), key


async def test_without_colours_or_braille_every_sign_still_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("NO_COLOR", "1")
    async with in_hall(tmp_path, "plaza", drafting_engine(), size=(80, 60)) as walk:
        await sealed(walk)
        await tried(walk, SELF)
        for key in ("v", "d"):
            shown = text_of(walk.app)
            assert shown.isascii(), key
            await walk.press(key)
        assert "[a] <the sea.>" in text_of(walk.app)
