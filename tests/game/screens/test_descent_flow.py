"""The descent on the screens: down after a pass, back to the forge, and up through the flood."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from canned_engine import CannedEngine, open_session
from hall_walk import Walk, in_hall
from sealed_records import a_climb

from game.session import Session
from saves.store import Store
from story.schema import LANGUAGES


def climbed(home: Path, engine: CannedEngine, language: str) -> Session:
    """A session whose player stands before the abyss."""
    session = open_session(home, engine, language)
    assert session.profile is not None
    store = Store(home)
    for record in a_climb("gate", "pendulum"):
        store.append(msgspec.structs.replace(record, profile=session.profile.key, digest=""))
    store.close()
    session.use_profile("Lin")
    return session


async def tried(walk: Walk, **build: int) -> None:
    """From the forge through one trial of `build` to its verdict."""
    walk.run.set_build({name.replace("_", ".", 1): value for name, value in build.items()})
    await walk.press("enter")
    await walk.settle()
    assert walk.attempt.room == "verdict", walk.attempt.room


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_pass_leads_down_and_the_flood_leads_on(tmp_path: Path, language: str) -> None:
    engine = CannedEngine()
    session = climbed(tmp_path, engine, language)
    async with in_hall(tmp_path, "abyss", engine, session=session) as walk:
        await walk.to("forge")
        await tried(walk, schedule_batch=8, cache_bits=8)
        assert walk.attempt.passed and walk.attempt.descending
        await walk.to("aftermath")
        await walk.to("descent")
        assert session.standing().halls["paging"].state == "sealed"
        await walk.to("forge")
        await tried(walk, cache_bits=0)
        assert walk.attempt.scarring and walk.attempt.aftermath_scene == "scar"
        await walk.to("aftermath")
        await walk.to("insight")
        assert session.standing().halls["abyss"].state == "passed"
        assert session.standing().halls["furnace"].state == "open"
        await walk.to("left")


async def test_a_flood_before_any_pass_leads_back_to_the_forge(tmp_path: Path) -> None:
    engine = CannedEngine()
    session = climbed(tmp_path, engine, "en")
    async with in_hall(tmp_path, "abyss", engine, session=session) as walk:
        await walk.to("forge")
        await tried(walk, schedule_batch=8, cache_bits=0)
        await walk.to("aftermath")
        await walk.to("forge")
        assert not walk.attempt.met and walk.attempt.scarred
        await tried(walk, schedule_batch=8, cache_bits=8)
        await walk.to("aftermath")
        await walk.to("insight")
