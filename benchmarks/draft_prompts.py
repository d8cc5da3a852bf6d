"""Questions for the trained draft's text: kinds of text crossed with topics, in a fixed order.

`draft_prompts.toml` holds forms and topics. One question in twenty of every kind is held out: never
trained on, only measured.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

PROMPTS = Path(__file__).with_name("draft_prompts.toml")

HELD_OUT = 20
"""Of so many questions one is held out."""


@dataclass(frozen=True)
class Question:
    kind: str
    text: str

    @property
    def held_out(self) -> bool:
        return _number(self.text) % HELD_OUT == 0


def read_questions(path: Path = PROMPTS) -> Mapping[str, tuple[Question, ...]]:
    """All questions by kind."""
    with path.open("rb") as file:
        kinds: dict[str, dict[str, list[str]]] = tomllib.load(file)
    return {
        kind: tuple(
            Question(kind, form.format(" ".join(words).strip()))
            for *words, form in product(parts["topics"], parts.get("places", [""]), parts["forms"])
        )
        for kind, parts in kinds.items()
    }


def questions(held_out: bool) -> list[Question]:
    """Those of all kinds that are held out, or those that are not, mixed in a fixed order."""
    every = [one for group in read_questions().values() for one in group]
    chosen = [one for one in every if one.held_out == held_out]
    return sorted(chosen, key=lambda one: _number("order " + one.text))


def in_rounds(asked: Sequence[Question]) -> Iterator[tuple[int, Question]]:
    """Without end: kinds take turns; one that has run out begins again, in a round of its own."""
    by_kind: dict[str, list[Question]] = {}
    for one in asked:
        by_kind.setdefault(one.kind, []).append(one)
    turn = 0
    while True:
        for group in by_kind.values():
            again, place = divmod(turn, len(group))
            yield again, group[place]
        turn += 1


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
