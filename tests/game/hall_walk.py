"""Walks a player through a hall by its keys: a real session, a canned engine, no clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from canned_engine import CannedEngine, open_session
from textual.pilot import Pilot

from game.app import LatencyWallApp
from game.attempt import Attempt, Room
from game.play import StageRun
from game.screens.guess import GuessScreen
from game.session import Session


@dataclass
class Walk:
    """`run` is the visit; `engine` the canned engine beneath the session."""

    app: LatencyWallApp
    pilot: Pilot[None]
    run: StageRun
    engine: CannedEngine
    session: Session

    @property
    def attempt(self) -> Attempt:
        return self.run.attempt

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def to(self, room: Room, most: int = 80) -> None:
        """Press Enter until the visit stands in `room`."""
        for _ in range(most):
            if self.attempt.room == room:
                await self.pilot.pause()
                return
            if isinstance(self.app.screen, GuessScreen) and not self.app.screen.touched:
                # An untouched instrument cannot be sealed.
                await self.press("right", "a")
            await self.press("enter")
        raise AssertionError(f"still at {self.attempt.room}, not {room}, after {most} keys")

    async def begin_trial(self) -> None:
        """From the forge into a trial, its first events shown."""
        await self.press("enter")
        for _ in range(8):
            await self.pilot.pause()
        self.app.screen.beat()  # type: ignore[attr-defined]
        await self.pilot.pause()

    async def settle(self) -> None:
        """Let what was started come to its end."""
        for _ in range(8):
            await self.pilot.pause()


@asynccontextmanager
async def in_hall(
    home: Path,
    stage: str = "pendulum",
    engine: CannedEngine | None = None,
    language: str = "en",
    size: tuple[int, int] = (80, 24),
    session: Session | None = None,
    **settings: Any,
) -> AsyncIterator[Walk]:
    """The hall's first line on the screen, the map beneath it."""
    engine = engine or CannedEngine()
    session = session or open_session(home, engine, language, **settings)
    await session.ready()
    app = LatencyWallApp(session, start="map")
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        run = StageRun(app, stage)
        run.start()
        await pilot.pause()
        yield Walk(app, pilot, run, engine, session)
