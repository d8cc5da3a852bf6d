"""The screens of a hall as text, by cells, in both languages and at both sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from canned_engine import CannedEngine
from hall_walk import Walk, in_hall
from text_grid import SIZES, check_snapshot, grid, text_of


@pytest.fixture(autouse=True)
def cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "cache"))


async def at_scene(walk: Walk) -> None:
    for _ in range(12):
        if walk.app.screen.dialogue.choosing:  # type: ignore[attr-defined]
            return
        await walk.press("enter")


async def at_guess(walk: Walk) -> None:
    await walk.to("guess")
    if walk.attempt.stage.id == "pendulum":
        await walk.press("1", "8", "left", "right", "enter")
    else:
        await walk.press("down", "enter")


async def at_forge(walk: Walk) -> None:
    """The winning build set, where this hall has one."""
    if walk.attempt.guess is None and walk.attempt.room != "guess":
        await at_guess(walk)
    await walk.to("forge")
    if walk.attempt.stage.id == "pendulum":
        await walk.press("right", "right", "right", "down", "right")


async def at_verdict(walk: Walk) -> None:
    await at_forge(walk)
    await walk.to("verdict")


async def look(walk: Walk, name: str, changes: list[str]) -> None:
    """Compare the screen with its snapshot; what differs is told once all were compared."""
    await walk.pilot.pause()
    size = walk.app.size
    language = walk.session.settings.language
    assert not any("[" in line and ".key." in line for line in grid(walk.app)), "a word is missing"
    try:
        stage = walk.attempt.stage.id
        check_snapshot(walk.app, f"{stage}_{name}_{language}_{size.width}x{size.height}")
    except AssertionError as error:
        changes.append(str(error))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("stage", ["gate", "pendulum"])
async def test_screens_look_as_they_did(
    tmp_path: Path, stage: str, language: str, size: tuple[int, int]
) -> None:
    engine = CannedEngine()
    changes: list[str] = []
    async with in_hall(tmp_path, stage, engine=engine, language=language, size=size) as walk:
        await at_scene(walk)
        await look(walk, "scene", changes)
        await at_guess(walk)
        await look(walk, "guess", changes)
        await at_forge(walk)
        await look(walk, "forge", changes)
        engine.hold = True
        await walk.begin_trial()
        await look(walk, "trial", changes)
        engine.hold = False
        engine.release()
        await walk.settle()
        await look(walk, "verdict", changes)
        await walk.to("insight")
        await look(walk, "insight", changes)
    assert not changes, "\n\n".join(changes)


@pytest.mark.parametrize("stage", ["gate", "pendulum"])
@pytest.mark.parametrize("size", [(60, 20), (100, 30), (200, 60)])
async def test_no_screen_breaks_at_other_sizes(
    tmp_path: Path, stage: str, size: tuple[int, int]
) -> None:
    engine = CannedEngine()
    async with in_hall(tmp_path, stage, engine=engine, size=size) as walk:
        for room in ("guess", "forge", "verdict", "insight"):
            if room == "verdict" and stage == "pendulum":
                await walk.press("right", "right", "right", "down", "right")
            await walk.to(room)  # type: ignore[arg-type]
            lines = grid(walk.app)
            assert any("Esc" in line for line in lines[-2:]), room


async def test_ascii_terminals_get_ascii_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "C")
    engine = CannedEngine()
    async with in_hall(tmp_path, engine=engine) as walk:
        assert text_of(walk.app).isascii()
        await at_verdict(walk)
        shown = text_of(walk.app)
        assert shown.isascii() and "|" in shown and "+ PASS" in shown


async def test_without_colour_every_state_has_a_sign_or_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No colour reaches the terminal, and what colour told is told in text."""
    monkeypatch.setenv("NO_COLOR", "1")
    async with in_hall(tmp_path) as walk:
        await walk.to("verdict")
        shown = text_of(walk.app)
        for word in ("x FAIL", "broken", "holds", "measured"):
            assert word in shown
        filters = walk.app.get_line_filters()
        strips = walk.app.screen._compositor.render_strips(walk.app.screen.size)
        from textual.color import Color

        for strip in strips:
            segments = list(strip)
            for line_filter in filters:
                segments = line_filter.apply(segments, Color.parse("#000000"))
            for segment in segments:
                assert segment.style is None or segment.style.color is None


async def test_the_goals_stand_beside_the_last_trial_in_the_forge(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        await walk.to("verdict")
        await walk.press("t")
        shown = text_of(walk.app)
        assert "where the last trial stood" in shown
        assert "broken" in shown and "holds" in shown


async def test_the_forge_prices_every_turn_and_refuses_what_cannot_run(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        await walk.to("forge")
        before = text_of(walk.app)
        await walk.press("right", "right", "right")
        after = text_of(walk.app)
        price = walk.session.price("pendulum", {"schedule.batch": 8})
        assert price is not None
        cache = f"KV {price.kv / 1e6:.3g} MB"
        assert cache in after and cache not in before
        await walk.press("down", "right", "right")
        assert walk.attempt.build["run.precision"] == "float16"
        assert "cannot run" in text_of(walk.app)
        await walk.press("enter")
        assert walk.attempt.room == "forge" and walk.engine.trials == []
        await walk.press("r")
        assert walk.attempt.build == dict(walk.attempt.stage.build)


async def test_details_and_the_other_view_are_one_key_away(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        await at_verdict(walk)
        await walk.press("d")
        shown = text_of(walk.app)
        for words in ("Beneath the figures", "by formula", "KL", "what really ran", "record"):
            assert words in shown
        await walk.press("d", "v")
        assert "prefill" in text_of(walk.app) and "a token" in text_of(walk.app)
        await walk.press("v")
        assert "operations a second" in text_of(walk.app)
        await walk.press("v")
        assert "Latency debt" in text_of(walk.app)


async def test_the_dial_takes_digits_arrows_and_the_ends(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        await walk.to("guess")
        dial = walk.app.screen.dial  # type: ignore[attr-defined]
        await walk.press("3", "4")
        assert dial.value == 34 and "34_" in text_of(walk.app)
        await walk.press("backspace")
        assert dial.value == 3
        await walk.press("right")
        assert dial.value == 4
        await walk.press("shift+right")
        assert dial.value == 4.1
        await walk.press("end")
        assert dial.value == 300
        await walk.press("home", "left")
        assert dial.value == 1
        await walk.press("9", "9", "9", "9")
        assert dial.value == 300, "what is typed beyond the dial stands at its end"
        await walk.press("enter", "enter")
        assert walk.attempt.guess == 300


async def test_a_straddling_interval_says_what_would_settle_it(tmp_path: Path) -> None:
    async with in_hall(tmp_path) as walk:
        await walk.to("forge")
        await walk.press("right", "right", "right")
        await walk.to("verdict")
        shown = " ".join(text_of(walk.app).split())
        assert "? INCONCLUSIVE" in shown and "open" in shown
        assert "Close what else is running" in shown
        await walk.to("forge")
