"""A player of the plain mode who answers each kind of prompt from a list of their own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
from canned_worker import CannedWorker

from game.plain import PlainGame
from game.plain_voice import Leave
from game.player import Player
from game.session import Session
from saves.documents import Record
from saves.store import Store
from story.loader import load_interface
from story.schema import LANGUAGES


class Script:
    """A player who answers each kind of prompt from its own list, and leaves when it is empty.

    Choices inside a scene are always answered with the first. What was asked and told is kept.
    """

    PROMPTS = {
        "name": "plain.your_name",
        "hall": "plain.which_hall",
        "choice": "plain.seal_choice",
        "dial": "plain.seal_dial",
        "forge": "plain.forge_prompt",
    }

    def __init__(self, **answers: list[str]) -> None:
        self.answers = {"name": ["Lin"], **answers}
        self.told: list[str] = []

    def kind(self, prompt: str) -> str:
        for language in LANGUAGES:
            interface = load_interface(language)
            for kind, key in self.PROMPTS.items():
                if prompt.startswith((interface.find(key) or "").split("{")[0]):
                    return kind
        return "scene"

    def read(self, prompt: str) -> str:
        self.told.append(prompt)
        kind = self.kind(prompt)
        if kind == "scene":
            return "1"
        if not self.answers.get(kind):
            raise Leave
        return self.answers[kind].pop(0)

    @property
    def text(self) -> str:
        return "\n".join(self.told)

    @property
    def flat(self) -> str:
        """The text without its line ends."""
        return " ".join(self.text.split())


async def play(
    home: Path,
    worker: CannedWorker,
    records: Iterable[Record] = (),
    language: str | None = None,
    **answers: list[str],
) -> tuple[Session, Script]:
    """One sitting at `home`; with `records`, of a player who has them."""
    if records:
        sow(home, records)
    session = Session.open(home=home, make_client=worker.make)
    if language is not None:
        session.update_settings(language=language)
    script = Script(**answers)
    assert await PlainGame(session, script.read, script.told.append).play() == 0
    assert worker.stopped or not worker.starts
    return session, script


def sow(home: Path, records: Iterable[Record]) -> None:
    """A profile at `home` that holds `records`."""
    store = Store(home)
    player = Player(store)
    key = player.create("Lin").key
    for record in records:
        store.append(msgspec.structs.replace(record, profile=key, digest=""))
    player.close()
