"""How the plain mode speaks and listens: wrapped lines out, one answer in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from engine.clean import clean

if TYPE_CHECKING:
    from game.session import Session

Read = Callable[[str], str]
Write = Callable[[str], None]
WIDTH = 78
_LONGEST_ANSWER = 200


class Leave(Exception):
    """The player asked to go: `q` at any prompt, or the end of the input."""


def read_line(prompt: str) -> str:
    """Raises Leave at the end of the input."""
    try:
        return input(prompt)
    except EOFError:
        raise Leave from None


def write_line(text: str) -> None:
    click.echo(text)


class Voice:
    """Speaks the player's language of the moment; `zh` or `en` at any prompt changes it."""

    def __init__(self, session: Session, read: Read, write: Write) -> None:
        self._session = session
        self._read = read
        self._write = write

    def say(self, key: str, **values: object) -> None:
        self.tell(self._session.text(key, **values))

    def tell(self, text: str, indent: str = "") -> None:
        """Any text, wrapped to the width of a terminal in cells."""
        for line in wrapped(clean(text), WIDTH - len(indent)):
            self._write(indent + line)

    async def ask(self, key: str, **values: object) -> str:
        """One line from the player. Raises Leave."""
        while True:
            prompt = self._session.text(key, **values) + " "
            line = await asyncio.to_thread(self._read, prompt)
            answer = clean(line, _LONGEST_ANSWER, one_line=True)
            word = answer.lower()
            if word in ("q", "quit", "exit"):
                raise Leave
            if word not in ("zh", "en"):
                return answer
            self._session.update_settings(language=word)
            self.say("plain.language_changed")

    async def choose(self, key: str, options: Sequence[str]) -> int:
        """A numbered choice; returns its index. Raises Leave."""
        for number, option in enumerate(options, 1):
            self.tell(f"{number}. {option}", indent="  ")
        while True:
            answer = await self.ask(key)
            if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(options):
                return int(answer) - 1
            self.say("plain.choose_number", count=len(options))


def wrapped(text: str, width: int) -> list[str]:
    """Lines no wider than `width` cells: by words, by characters where the script has none."""
    from game.widgets.cells import wrap

    return [line for paragraph in text.splitlines() or [""] for line in wrap(paragraph, width)]
