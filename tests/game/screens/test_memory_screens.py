"""The screens of the Abyss and the Paging Array as text, in both languages and at both sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from canned_engine import CannedEngine
from hall_walk import Walk, in_hall
from text_grid import SIZES, check_snapshot, grid, text_of

from engine.page_map import CELL_SIGNS
from game.measured import hear
from game.widgets.basin import Basin


@pytest.fixture(autouse=True)
def cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "cache"))


async def look(walk: Walk, name: str, changes: list[str]) -> None:
    """Compare the screen with its snapshot; what differs is told once all were compared."""
    await walk.pilot.pause()
    size, language = walk.app.size, walk.session.settings.language
    assert not any(f"[{word}." in text_of(walk.app) for word in WORDS), "a word is missing"
    stage = walk.attempt.stage.id
    try:
        check_snapshot(walk.app, f"{stage}_{name}_{language}_{size.width}x{size.height}")
    except AssertionError as error:
        changes.append(str(error))


WORDS = ("piece", "knob", "metric", "forge", "phase", "flood", "verdict", "goal", "detail", "map")


async def trial(walk: Walk, name: str, changes: list[str] | None = None) -> None:
    """From the forge through a trial, looked at midway, to its verdict."""
    walk.engine.hold = True
    await walk.begin_trial()
    if changes is not None:
        await look(walk, name, changes)
    walk.engine.hold = False
    walk.engine.release()
    await walk.settle()


async def winning_build(walk: Walk) -> None:
    """Batch 8 at 8 bits in the Abyss; paged and shared in the Array."""
    if walk.attempt.stage.id == "abyss":
        while walk.attempt.build["schedule.batch"] != 8:
            await walk.press("right")
        await walk.press("down", "down")
        while walk.attempt.build["cache.bits"] != 8:
            await walk.press("right")
    else:
        await walk.press("right", "down", "down", "right")


async def full_bits(walk: Walk) -> None:
    """The winning build of the Abyss with its keys and values as wide as they were: a flood."""
    await walk.press("down", "down")
    while walk.attempt.build["cache.bits"] != 0:
        await walk.press("left")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_the_abyss_looks_as_it_did(
    tmp_path: Path, language: str, size: tuple[int, int]
) -> None:
    changes: list[str] = []
    async with in_hall(tmp_path, "abyss", language=language, size=size) as walk:
        await walk.to("guess")
        await walk.press("6", "0", "enter")
        await look(walk, "guess", changes)
        await walk.to("forge")
        await winning_build(walk)
        await look(walk, "forge", changes)
        await trial(walk, "trial", changes)
        await look(walk, "passed", changes)
        await walk.to("forge")
        await full_bits(walk)
        await look(walk, "descent", changes)
        await trial(walk, "breaking", changes)
        await look(walk, "flooded", changes)
    assert not changes, "\n\n".join(changes)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_the_array_looks_as_it_did(
    tmp_path: Path, language: str, size: tuple[int, int]
) -> None:
    changes: list[str] = []
    async with in_hall(tmp_path, "paging", language=language, size=size) as walk:
        await walk.to("guess")
        await walk.press("4", "0", "enter")
        await look(walk, "guess", changes)
        await walk.to("forge")
        await winning_build(walk)
        await look(walk, "forge", changes)
        await trial(walk, "trial", changes)
        await look(walk, "verdict", changes)
        await walk.press("v")
        await look(walk, "view", changes)
        if size == (80, 24):
            await walk.press("v")
            await look(walk, "lanes", changes)
    assert not changes, "\n\n".join(changes)


@pytest.mark.parametrize("stage", ["abyss", "paging"])
@pytest.mark.parametrize("size", [(60, 20), (100, 30), (200, 60)])
async def test_no_screen_breaks_at_other_sizes(
    tmp_path: Path, stage: str, size: tuple[int, int]
) -> None:
    async with in_hall(tmp_path, stage, size=size) as walk:
        for room in ("guess", "forge", "verdict"):
            if room == "verdict":
                await winning_build(walk)
            await walk.to(room)  # type: ignore[arg-type]
            assert any("Esc" in line for line in grid(walk.app)[-2:]), room
        await walk.press("v")
        grid(walk.app)
        await walk.press("d")
        grid(walk.app)


async def test_the_abyss_keeps_the_answer_until_the_guess_is_sealed(tmp_path: Path) -> None:
    """47.2 MB is the truth; one request of the default build takes 23.8."""
    async with in_hall(tmp_path, "abyss", size=(120, 40)) as walk:
        for room in ("arrival", "guess"):
            await walk.to(room)  # type: ignore[arg-type]
            waters = walk.app.screen.query_one(Basin).waters
            assert waters is not None and waters.held == 0 and waters.weights > 300e6
            assert "23.8" not in text_of(walk.app) and "KV, held" not in text_of(walk.app)
        await walk.to("forge")
        waters = walk.app.screen.query_one(Basin).waters
        assert waters is not None and waters.held == 1031 * 23_040, "then the formula speaks"


async def test_the_needle_moves_the_water(tmp_path: Path) -> None:
    async with in_hall(tmp_path, "abyss", size=(120, 40)) as walk:
        await walk.to("guess")
        await walk.press("6", "0")
        waters = walk.app.screen.query_one(Basin).waters
        assert waters is not None and waters.held == 60e6 and waters.over == 0
        assert "60 MB" in text_of(walk.app)
        await walk.press("end")
        waters = walk.app.screen.query_one(Basin).waters
        assert waters is not None and waters.held + waters.asked == 1e10
        assert waters.over > 0 and "over the rim" in text_of(walk.app)


async def test_the_forge_shows_the_rim_and_what_passes_it(tmp_path: Path) -> None:
    async with in_hall(tmp_path, "abyss") as walk:
        await walk.to("forge")
        while walk.attempt.build["schedule.batch"] != 8:
            await walk.press("right")
        price = walk.session.price("abyss", {"schedule.batch": 8})
        assert price is not None and price.vessel is not None
        over = price.total - price.kv + price.live - price.vessel
        assert over > 0
        shown = text_of(walk.app)
        assert f"over the rim {over / 1e6:.3g} MB" in shown and "of 511 MB" in shown
        assert f"slots of 1,032: {price.plan.slots};" in shown
        assert "8,248 tokens at once, 8,192 asked" in shown
        await walk.press("r")
        assert "over the rim" not in text_of(walk.app)


async def test_blocks_and_tokens_of_a_pool_are_told_before_it_runs(tmp_path: Path) -> None:
    async with in_hall(tmp_path, "paging") as walk:
        await walk.to("forge")
        build = walk.app.session.open_stage("paging").build
        longest = int(build["workload.prompt"]) + int(build["workload.output"])
        assert f"slots of {longest}" in text_of(walk.app)
        await walk.press("right")
        price = walk.session.price("paging", {"cache.layout": "paged"})
        assert price is not None
        told = f"{price.plan.blocks} blocks of 16: {price.plan.tokens:,} tokens"
        assert told in text_of(walk.app)


async def test_the_array_is_empty_until_the_guess_is_sealed_and_then_filled_by_formula(
    tmp_path: Path,
) -> None:
    async with in_hall(tmp_path, "paging", size=(120, 40)) as walk:
        shown = text_of(walk.app)
        slots = walk.session.price("paging", {})
        assert slots is not None
        cells = slots.plan.slots * -(-slots.plan.capacity // 16)
        assert f"free {cells} | {cells}" in shown and "in use" not in shown
        await walk.to("guess")
        await walk.press("4", "0")
        assert "in use" in text_of(walk.app) and f"full {int(0.4 * cells)} | 0" in text_of(walk.app)
        await walk.to("forge")
        price = walk.session.price("paging", {})
        assert price is not None
        share = price.live / price.kv
        assert 0.3 < share < 0.6, "short requests in long slots"
        shown = text_of(walk.app)
        assert "in use ⣶⣶⣶" in shown and f"{share * 100:.0f} %" in shown
        assert "by formula" in shown


async def test_the_descent_asks_for_a_flood_until_the_scar_is_there(tmp_path: Path) -> None:
    asked = "Now break it"
    async with in_hall(tmp_path, "abyss") as walk:
        await walk.to("forge")
        assert asked not in text_of(walk.app)
        await winning_build(walk)
        await trial(walk, "")
        assert "PASS" in text_of(walk.app) and "insight" not in grid(walk.app)[-1]
        await walk.to("forge")
        assert asked in text_of(walk.app)
        await full_bits(walk)
        await trial(walk, "")
        shown = text_of(walk.app)
        assert "x FAIL" in shown and "The vessel broke" in shown and "your first scar" in shown
        assert "7,175" in shown and "unmeasured" in shown
        assert "insight" in grid(walk.app)[-1], "with the scar the hall is complete"
        await walk.press("t")
        assert asked not in text_of(walk.app)


async def test_a_flood_is_drawn_over_the_rim_as_it_happens(tmp_path: Path) -> None:
    async with in_hall(tmp_path, "abyss") as walk:
        await walk.to("forge")
        while walk.attempt.build["schedule.batch"] != 8:
            await walk.press("right")
        walk.engine.hold = True
        await walk.begin_trial()
        waters = walk.app.screen.query_one(Basin).waters
        assert waters is not None and waters.asked == 1032 * 23_040 and waters.over > 0
        shown = text_of(walk.app)
        for words in ("The vessel broke", "one request asked", "23.8 MB", "7 of 8"):
            assert words in shown
        walk.engine.release()


async def test_ascii_terminals_get_the_same_pictures_in_ascii(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "C")
    async with in_hall(tmp_path, "paging", size=(120, 40)) as walk:
        await walk.to("forge")
        await winning_build(walk)
        walk.engine.hold = True
        await walk.begin_trial()
        shown = text_of(walk.app)
        assert shown.isascii()
        for sign in CELL_SIGNS.values():
            assert sign in shown
        walk.engine.release()
    async with in_hall(tmp_path / "abyss", "abyss", size=(120, 40)) as walk:
        await walk.to("forge")
        while walk.attempt.build["schedule.batch"] != 8:
            await walk.press("right")
        shown = text_of(walk.app)
        assert shown.isascii() and all(sign in shown for sign in "O~%-")


async def test_a_copy_is_marked_while_it_is_new(tmp_path: Path) -> None:
    async with in_hall(tmp_path, "paging", size=(120, 40)) as walk:
        await walk.to("forge")
        await winning_build(walk)
        walk.engine.hold = True
        await walk.begin_trial()
        shown = text_of(walk.app)
        assert "copied on write 6 -> 47" in shown and "***" in shown
        screen = walk.app.screen
        heard = screen.known.pages["candidate"]  # type: ignore[attr-defined]
        screen.known = hear(screen.known, heard)  # type: ignore[attr-defined]
        screen._dirty = True  # type: ignore[attr-defined]
        screen.beat()  # type: ignore[attr-defined]
        await walk.settle()
        shown = text_of(walk.app)
        assert "***" not in shown and "2 copies in all" in shown
        walk.engine.release()


async def test_details_tell_what_each_kind_of_request_saw(tmp_path: Path) -> None:
    engine = CannedEngine()
    async with in_hall(tmp_path, "paging", engine=engine, size=(120, 40)) as walk:
        await walk.to("forge")
        await winning_build(walk)
        await trial(walk, "")
        await walk.press("d")
        shown = text_of(walk.app)
        for words in ("your build, chat requests", "reference, document requests", "waited", "ITL"):
            assert words in shown
