"""The whole game as lines of text: for screen readers, slow links and curious pipes.

Same session, same rules, same order of steps as the screens. Nothing is drawn, nothing moves, and
every prompt names its answers.
"""

from __future__ import annotations

import asyncio

from game.plain_hall import PlainHall
from game.plain_voice import Leave, Read, Voice, Write, read_line, write_line
from game.session import Session


class PlainGame:
    """One sitting. `read` and `write` are replaced in tests."""

    def __init__(self, session: Session, read: Read = read_line, write: Write = write_line) -> None:
        self.session = session
        self.voice = Voice(session, read, write)

    async def play(self) -> int:
        """Until the player leaves. Returns the exit status."""
        say = self.voice.say
        try:
            say("plain.welcome")
            await self._profile()
            while True:
                await self._map()
        except Leave:
            say("plain.farewell")
        finally:
            await self.session.close()
        return 0

    async def _profile(self) -> None:
        """Ask for a name where nobody has played yet."""
        while self.session.profile is None:
            name = await self.voice.ask("plain.your_name")
            if not name:
                continue
            try:
                await asyncio.to_thread(self.session.create_profile, name)
            except ValueError as error:
                self.voice.tell(str(error))

    async def _map(self) -> None:
        session, voice = self.session, self.voice
        standing = session.standing()
        voice.tell("")
        voice.say("plain.map", debt=standing.debt)
        for notice in session.take_notices():
            voice.tell(notice)
        halls = []
        for stage in session.stages:
            hall = standing.halls[stage.id]
            crowns = ", ".join(session.text(f"plain.crown.{name}") for name in hall.crowns)
            line = session.text(
                "plain.hall",
                name=session.stage_text(stage.id).name,
                state=session.text(f"plain.state.{hall.state}"),
            )
            scar = ""
            if hall.scar is not None:
                scar = session.text("plain.scar_kept")
            elif stage.scar is not None and hall.met:
                scar = session.text("plain.scar_to_come")
            halls.append("; ".join(part for part in (line, crowns, scar) if part))
        index = await voice.choose("plain.which_hall", halls)
        stage = session.stages[index]
        if standing.halls[stage.id].state == "sealed":
            voice.tell(session.closed_line(stage.id))
            return
        session.stand_at(stage.id)
        await PlainHall(session, voice, stage.id).play()
