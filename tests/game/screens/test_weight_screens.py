"""The screens of the Furnace and the Precision Wall, in both languages and at both sizes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from canned_engine import CannedEngine
from canned_weights import BABBLE, make_pressed
from hall_walk import Walk, in_hall
from text_grid import SIZES, check_snapshot, grid, text_of

from engine.domains import Value
from engine.messages import Pressed, Progress
from engine.quality_report import Answer
from engine.quantised import LayerError
from engine.trial import TrialResult
from game.screens.ledger import LedgerScreen, RecordScreen

AWQ: dict[str, Value] = {"weights.bits": 4, "weights.method": "awq", "weights.group": 32}
ROUNDED: dict[str, Value] = {"weights.bits": 3, "weights.method": "rtn", "weights.group": 0}
WALL: dict[str, Value] = {**AWQ, "weights.group": 64, "weights.embedding": 4}
SAID = "The capital of France is Paris, a city on the Seine, and it has been so for centuries."
ANSWERS = (
    Answer("What is the capital of France?", SAID, SAID.replace("Paris", "Lyon"), 5),
    Answer("Why is the sky blue?", "Because air scatters blue light.", "[bold]x[/bold]\x1b[2J", 0),
    Answer("Name a prime.", "Seven.", "Seven.", None),
)
PRESSING = (
    Progress(1, "calibrating", 0, 1, detail="awq"),
    Progress(1, "quantising", 0, 1, seconds_left=42.0),
    Pressed(1, "candidate", 70, 121, LayerError(17, "gate_up", 0.0423)),
)


@pytest.fixture(autouse=True)
def cache_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "cache"))


def made(stage: str, build: dict[str, Value]) -> TrialResult:
    """The trial of `build`, its texts and its divergence along the text as long as real ones."""
    result = make_pressed(stage, "pass", build)
    assert result.quality is not None
    kl = result.quality.kl
    rising = tuple(kl * (0.4 + 0.15 * step) for step in range(8))
    answers = ANSWERS if kl < 1 else result.quality.answers
    quality = msgspec.structs.replace(result.quality, kl_by_position=rising, answers=answers)
    return msgspec.structs.replace(result, quality=quality)


def pressing_engine() -> CannedEngine:
    engine = CannedEngine(lambda command: made(command.spec.stage, dict(command.spec.build)))
    engine.events = PRESSING
    return engine


async def sealed(walk: Walk) -> None:
    """The guess sealed: twice in the furnace, three bits at the wall."""
    await walk.to("guess")
    if walk.attempt.stage.id == "furnace":
        await walk.press("2", "enter")
    else:
        await walk.press("c", "enter")
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
    stage = walk.attempt.stage.id
    try:
        check_snapshot(walk.app, f"{stage}_{name}_{language}_{size.width}x{size.height}")
    except AssertionError as error:
        changes.append(str(error))


WORDS = ("piece", "knob", "metric", "forge", "phase", "trial", "verdict", "goal", "detail", "map")


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_the_furnace_looks_as_it_did(
    tmp_path: Path, language: str, size: tuple[int, int]
) -> None:
    changes: list[str] = []
    engine = pressing_engine()
    async with in_hall(tmp_path, "furnace", engine, language, size) as walk:
        await sealed(walk)
        walk.run.set_build(AWQ)
        await walk.press("down", "up")
        await look(walk, "forge", changes)
        engine.hold = True
        await walk.begin_trial()
        await look(walk, "pressing", changes)
        engine.hold = False
        engine.release()
        await walk.settle()
        await look(walk, "verdict", changes)
        await walk.press("d")
        await look(walk, "details", changes)
    assert not changes, "\n\n".join(changes)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("language", ["en", "zh"])
async def test_the_wall_looks_as_it_did(
    tmp_path: Path, language: str, size: tuple[int, int]
) -> None:
    changes: list[str] = []
    async with in_hall(tmp_path, "precision", pressing_engine(), language, size) as walk:
        await sealed(walk)
        await tried(walk, WALL)
        await walk.to("forge")
        await look(walk, "descent", changes)
        await tried(walk, ROUNDED)
        await look(walk, "fallen", changes)
    assert not changes, "\n\n".join(changes)


async def test_the_details_lay_both_models_side_by_side(tmp_path: Path) -> None:
    """What was cleaned is gone, what looks like markup is not, and both texts show the parting."""
    async with in_hall(tmp_path, "furnace", pressing_engine(), size=(120, 50)) as walk:
        await sealed(walk)
        await tried(walk, AWQ)
        await walk.press("d")
        shown = text_of(walk.app)
        assert "21.5 s of quantising" in shown and "27 of 30 still right" in shown
        assert "is [Paris,] a city" in shown and "is [Lyon,] a city" in shown
        assert "part at token 6" in shown and "[[bold]x[/bold]]" in shown
        assert "The same, token for token." in shown and shown.count("Seven.") == 1


async def test_details_scroll_and_leave_the_word_and_the_keys_where_they_are(
    tmp_path: Path,
) -> None:
    async with in_hall(tmp_path, "furnace", pressing_engine()) as walk:
        await sealed(walk)
        await tried(walk, AWQ)
        await walk.press("d")
        assert "record" not in text_of(walk.app)
        for _ in range(8):
            await walk.press("pagedown")
        lines = grid(walk.app)
        assert any("record" in line for line in lines) and "+ PASS" in lines[1]
        assert "scroll" in lines[-1] and "What the weights became" not in text_of(walk.app)
        await walk.press("home")
        assert "What the weights became" in text_of(walk.app)
        await walk.press("end")
        assert any("record" in line for line in grid(walk.app))
        await walk.press("d", "d")
        assert "What the weights became" in text_of(walk.app), "they open at their beginning"


async def test_a_fall_is_quoted_at_the_verdict_and_kept_in_the_ledger(tmp_path: Path) -> None:
    async with in_hall(tmp_path, "precision", pressing_engine()) as walk:
        await sealed(walk)
        await tried(walk, ROUNDED)
        shown = text_of(walk.app)
        assert "The meaning is gone" in shown and BABBLE in shown and "Paris." in shown
        assert "your second scar" in shown and "Latency debt" in shown
        assert "Enter" in grid(walk.app)[-1]
        await walk.press("l")
        assert isinstance(walk.app.screen, LedgerScreen)
        assert any("Precision" in line and " fell " in line for line in grid(walk.app))
        await walk.press("enter")
        assert isinstance(walk.app.screen, RecordScreen)
        await walk.press("end")
        page = walk.app.screen.query_one("#detail").visual.plain  # type: ignore[attr-defined]
        assert "Over the cliff" in page and "[France]" in page and "2 bits: KL 11.4, fallen" in page


async def test_the_map_names_the_scar_of_a_fall(tmp_path: Path) -> None:
    async with in_hall(tmp_path, "precision", pressing_engine(), size=(120, 40)) as walk:
        await sealed(walk)
        await tried(walk, WALL)
        await walk.to("forge")
        assert "go over the edge" in text_of(walk.app)
        await tried(walk, ROUNDED)
        await walk.press("escape", *["up"] * 6)
        shown = text_of(walk.app)
        assert "4.5 bits" in shown and "scar" in shown and "the model babbled" in shown


async def test_the_press_can_be_stopped(tmp_path: Path) -> None:
    engine = pressing_engine()
    async with in_hall(tmp_path, "furnace", engine) as walk:
        await sealed(walk)
        walk.run.set_build(AWQ)
        engine.hold = True
        await walk.begin_trial()
        shown = text_of(walk.app)
        assert "pressing matrix 70 of 121" in shown and "about 42 s left" in shown
        assert "layer 18 of 30" in shown and "4.23 %" in shown
        await walk.press("escape")
        await walk.settle()
        assert walk.attempt.room == "forge" and engine.aborts == 1
        assert "was stopped" in text_of(walk.app) and walk.session.records() == ()


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("stage", ["furnace", "precision"])
async def test_a_refusal_stands_whole_beside_every_knob(
    tmp_path: Path, stage: str, language: str
) -> None:
    """At 80 columns, with its nearest legal value, however many knobs the hall has."""
    async with in_hall(tmp_path, stage, pressing_engine(), language) as walk:
        await sealed(walk)
        walk.run.set_build({"weights.bits": 4, "weights.method": "smoothquant"})
        await walk.press("down", "up")
        assert "nearest: weights.bits=8" in " ".join(text_of(walk.app).split())
        for knob in walk.attempt.stage.knobs:
            assert walk.session.text(f"knob.{knob}") in text_of(walk.app), knob
        await walk.press("enter")
        assert walk.attempt.room == "forge"


async def test_the_forge_warns_before_a_method_learns_from_too_little(tmp_path: Path) -> None:
    async with in_hall(tmp_path, "furnace", pressing_engine()) as walk:
        await sealed(walk)
        walk.run.set_build({"weights.bits": 4, "weights.method": "gptq"})
        await walk.press("down", "up")
        assert "auto means 4 bits in groups of 64." in text_of(walk.app)
        walk.run.set_build({"weights.calibration": 512})
        await walk.press("down", "up")
        shown = " ".join(text_of(walk.app).split())
        assert "! 512 tokens cannot tell apart the 1,536 inputs of the widest matrix" in shown
        walk.run.set_build({"weights.calibration": 4096, "weights.crossover": 0})
        await walk.press("down", "up")
        shown = " ".join(text_of(walk.app).split())
        assert "cannot tell apart" not in shown and "! Never dense." in shown


async def test_without_colours_or_braille_every_sign_still_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANG", "C")
    monkeypatch.setenv("NO_COLOR", "1")
    async with in_hall(tmp_path, "furnace", pressing_engine(), size=(80, 60)) as walk:
        await sealed(walk)
        await tried(walk, AWQ)
        await walk.press("d")
        shown = text_of(walk.app)
        assert shown.isascii() and "[Lyon,]" in shown and "##" in shown


@pytest.mark.parametrize("stage", ["furnace", "precision"])
@pytest.mark.parametrize("size", [(60, 20), (100, 30), (200, 60)], ids=str)
async def test_no_screen_breaks_at_other_sizes(
    tmp_path: Path, stage: str, size: tuple[int, int]
) -> None:
    async with in_hall(tmp_path, stage, pressing_engine(), size=size) as walk:
        await sealed(walk)
        assert any("Esc" in line for line in grid(walk.app)[-2:])
        await tried(walk, AWQ if stage == "furnace" else WALL)
        assert any("Esc" in line for line in grid(walk.app)[-2:])
        for key in ("v", "d"):
            await walk.press(key)
            assert any("Esc" in line for line in grid(walk.app)[-2:]), key


async def test_the_other_view_is_offered_as_soon_as_there_is_one(tmp_path: Path) -> None:
    """While layers are pressed: the hint was once there only after the trial."""
    engine = pressing_engine()
    async with in_hall(tmp_path, "furnace", engine, size=(80, 24)) as walk:
        await sealed(walk)
        walk.run.set_build(AWQ)
        engine.hold = True
        await walk.begin_trial()
        walk.app.screen.beat()  # type: ignore[attr-defined]
        await walk.pilot.pause()
        assert "V other view" in text_of(walk.app)
        engine.hold = False
        engine.release()
        await walk.settle()
