"""Faults that show only when the two languages are laid side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from story.filling import placeholders
from story.lint_scenes import Fault, Room
from story.schema import Line
from story.yaml_reader import Step


def pair_faults(room: Room, other: Room) -> Iterator[Fault]:
    """Faults of `room` as seen from the other language: run it both ways."""
    for scene, lines in other.text.scenes.items():
        mine = {
            line.id: (index, line) for index, line in enumerate(room.text.scenes.get(scene, ()))
        }
        for line in lines:
            if line.id not in mine:
                fault = f"no {room.language!r} text for the line {line.id!r}"
                yield ("scenes", scene), "missing-line", fault
            else:
                index, own = mine[line.id]
                yield from _line_faults(own, line, ("scenes", scene, index))
        order = [line.id for line in lines if line.id in mine]
        if order != [name for name in mine if name in order]:
            yield ("scenes", scene), "order", f"lines of {scene!r} come in another order"
    for name in ("formula", "published", "correction", "closed", "question"):
        yield from _same_quotes(getattr(room.text, name), getattr(other.text, name), (name,))
    for index, (mine_hint, hint) in enumerate(zip(room.text.hints, other.text.hints, strict=False)):
        yield from _same_quotes(mine_hint, hint, ("hints", index))


def _line_faults(line: Line, other: Line, path: tuple[Step, ...]) -> Iterator[Fault]:
    if line.who != other.who:
        yield (*path, "who"), "differs", f"{line.id!r} is said by another in the other language"
    if set(line.when) != set(other.when):
        yield (*path, "when"), "differs", f"{line.id!r} has other conditions in the other language"
    yield from _same_quotes(line.text, other.text, (*path, "text"))
    mine = {reply.id: (at, reply) for at, reply in enumerate(line.choices)}
    for reply in other.choices:
        if reply.id not in mine:
            yield (*path, "choices"), "missing-line", f"{line.id!r} lacks the reply {reply.id!r}"
            continue
        at, own = mine[reply.id]
        yield from _same_quotes(own.text, reply.text, (*path, "choices", at, "text"))
        yield from _same_quotes(own.answer, reply.answer, (*path, "choices", at, "answer"))


def _same_quotes(text: str, other: str, path: tuple[Step, ...]) -> Iterator[Fault]:
    missing = [name for name in placeholders(other) if name not in placeholders(text)]
    if missing:
        names = ", ".join(missing)
        yield path, "placeholder", f"the other language quotes {names}; this one does not"


def interface_pair_faults(
    texts: Mapping[str, str], other: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """(key, code, message) for keys of `other` that `texts` lacks or fills otherwise."""
    for key, text in other.items():
        if key not in texts:
            yield key, "missing-key", f"{key!r} has no text in this language"
        else:
            for _, code, message in _same_quotes(texts[key], text, ()):
                yield key, code, f"{key!r}: {message}"
