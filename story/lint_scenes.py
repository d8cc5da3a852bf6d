"""Faults of one stage's words in one language: dead ends, unreachable lines, unknown facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.domains import nearest_name
from story.conditions import contradiction, gaps
from story.fact_table import Fact
from story.facts import ALWAYS, EITHER, FACTS, FactValue, holds
from story.filling import placeholders
from story.lint_words import plain_faults, scene_faults, texts
from story.schema import Condition, Language, Line, SceneName, Stage, StageText
from story.yaml_reader import Document, Step

Fault = tuple[tuple[Step, ...], str, str]
"""(path in the document, code, message)"""

_VERDICTS: dict[SceneName, tuple[str, ...]] = {
    "passed": ("pass",),
    "failed": ("fail",),
    "undecided": ("inconclusive", "invalid"),
    "descent": ("pass",),
    "scar": ("fail",),
}
_BEFORE: dict[SceneName, tuple[str, ...]] = {
    "arrival": ("always", "machine"),
    "forge": ("always", "machine", "guess"),
}
_COVERED = ("verdict", "guess", "truth", "guess_close", "guess_factor", "broken_goal")
"""Facts for which a scene that asks at all must have a line whatever the answer."""
_HINTS = 3
_OF_A_SCAR: tuple[SceneName, ...] = ("descent", "scar")


@dataclass(frozen=True)
class Room:
    """A stage with its words in one language, and where they were written."""

    stage: Stage
    text: StageText
    document: Document
    language: Language

    @property
    def by_choice(self) -> bool:
        return self.stage.guess is not None and self.stage.guess.kind == "choice"


def room_faults(room: Room) -> Iterator[Fault]:
    """Every fault of this stage's words that one language alone shows."""
    for path, place, text in texts(room.document.value):
        for code, message in (*plain_faults(text, room.language), *scene_faults(text, place)):
            yield path, code, message
    if not room.stage.open:
        if not room.text.closed.strip():
            yield ("stage",), "dead-end", "a closed hall says why it is closed; write `closed:`"
        return
    yield from _missing_parts(room)
    yield from _foreign_scenes(room)
    yield from _quotes_outside(room)
    for scene, lines in room.text.scenes.items():
        yield from _scene_faults(room, scene, lines)


def _missing_parts(room: Room) -> Iterator[Fault]:
    required: list[SceneName] = ["arrival", "forge", "passed", "undecided", "insight"]
    if room.stage.goals:
        required.append("failed")
    if room.stage.scar is not None:
        required += _OF_A_SCAR
    for scene in required:
        lines = room.text.scenes.get(scene, ())
        if not any(not line.when and set(placeholders(line.text)) <= ALWAYS for line in lines):
            fault = f"{scene!r} needs a line that is always told: no condition, no rarer fact"
            yield ("scenes", scene), "dead-end", fault
    for name in ("question", "formula", "published", "correction"):
        if not getattr(room.text, name).strip():
            yield ("stage",), "dead-end", f"an open hall has {name!r}"
    guess = room.stage.guess
    wanted = set(guess.choices) if guess is not None else set()
    if wanted != set(room.text.choices):
        names = ", ".join(sorted(wanted ^ set(room.text.choices)))
        yield ("choices",), "choices", f"the choices differ from the stage's: {names}"
    if len(room.text.hints) != _HINTS:
        yield ("hints",), "hints", f"hints come in {_HINTS} steps, not {len(room.text.hints)}"
        return
    for knob, value in room.stage.hint_build.items():
        if f"{knob.rsplit('.', 1)[-1]}={value}" not in room.text.hints[-1]:
            fault = f"the last hint names the build: {knob.rsplit('.', 1)[-1]}={value} is not in it"
            yield ("hints", _HINTS - 1), "hints", fault


def _foreign_scenes(room: Room) -> Iterator[Fault]:
    for scene in _OF_A_SCAR:
        if room.stage.scar is None and scene in room.text.scenes:
            fault = f"{scene!r} is told only in a hall that demands a scar; this one does not"
            yield ("scenes", scene), "no-scar", fault


def _quotes_outside(room: Room) -> Iterator[Fault]:
    for path, place, text in texts(room.document.value):
        if path[0] == "scenes":
            continue
        for name in placeholders(text):
            if place != "formula":
                yield (
                    path,
                    "unknown-fact",
                    f"{name!r}: facts are quoted in scenes and formulas only",
                )
            elif name not in FACTS:
                yield path, "unknown-fact", _no_fact(name)


def _scene_faults(room: Room, scene: SceneName, lines: Sequence[Line]) -> Iterator[Fault]:
    words = _words(room, scene)
    seen: dict[str, str] = {}
    for index, line in enumerate(lines):
        path: tuple[Step, ...] = ("scenes", scene, index)
        prefix = f"{room.stage.id}.{scene}."
        if not line.id.startswith(prefix) or line.id == prefix:
            yield (*path, "id"), "line-id", f"{line.id!r} does not begin with {prefix!r}"
        if line.text in seen:
            fault = f"{line.id!r} says what {seen[line.text]!r} says"
            yield (*path, "text"), "duplicate", fault
        seen[line.text] = line.id
        ids = [reply.id for reply in line.choices]
        if len(set(ids)) != len(ids):
            yield (*path, "choices"), "duplicate", "two replies have one id"
        yield from _quotes(room, scene, line, path)
        broken = [
            fault
            for at, one in enumerate(line.when)
            for fault in _condition(room, scene, one, (*path, "when", at), words)
        ]
        yield from broken
        impossible = None if broken else _impossible(room, scene, line, words)
        if impossible:
            fault = f"{line.id!r} is never told: nothing meets what it asks of {impossible!r}"
            yield (*path, "when"), "unreachable", fault
    yield from _gaps(room, scene, lines, words)


def _impossible(
    room: Room, scene: SceneName, line: Line, words: dict[str, tuple[str, ...]]
) -> str | None:
    """The fact of whose conditions nothing can meet all in this scene; None where there is none."""
    given = _given(room, scene)
    for one in line.when:
        if one.fact in given and not holds(one, given):
            return one.fact
    return contradiction(_asked(room, line.when), line, words)


def _gaps(
    room: Room, scene: SceneName, lines: Sequence[Line], words: dict[str, tuple[str, ...]]
) -> Iterator[Fault]:
    for fact in _asked(room, [one for line in lines for one in line.when]):
        if fact.name in _COVERED and not (scene == "scar" and fact.name == "broken_goal"):
            missed = gaps(fact, lines, words.get(fact.name, ()))
            if missed:
                shown = ", ".join(_show(value) for value in missed)
                fault = f"lines ask for {fact.name!r}, and none is told where it is {shown}"
                yield ("scenes", scene), "gap", fault


def _quotes(room: Room, scene: SceneName, line: Line, path: tuple[Step, ...]) -> Iterator[Fault]:
    said = [((*path, "text"), line.text)]
    for at, reply in enumerate(line.choices):
        said += [((*path, "choices", at, "text"), reply.text)]
        said += [((*path, "choices", at, "answer"), reply.answer)]
    for where, text in said:
        for name in placeholders(text):
            if name not in FACTS:
                yield where, "unknown-fact", _no_fact(name)
            else:
                yield from _unknown_here(room, scene, FACTS[name], where)


def _unknown_here(
    room: Room, scene: SceneName, fact: Fact, where: tuple[Step, ...]
) -> Iterator[Fault]:
    """A fact that cannot be had when this scene is told: not yet, or not of such a trial."""
    if scene in _BEFORE and fact.known not in _BEFORE[scene]:
        yield where, "too-early", f"{fact.name!r} is not known yet in {scene!r}"
    elif (fact.of == "flood" and not _may_flood(room, scene)) or (
        fact.of == "runs" and scene == "scar" and room.stage.scar == "flood"
    ):
        kind = "broke the memory budget" if fact.of == "flood" else "ran to its end"
        fault = f"{fact.name!r} is known of a trial that {kind}; {scene!r} never follows one"
        yield where, "never-known", fault


def _may_flood(room: Room, scene: SceneName) -> bool:
    """The insight of a hall that demands a flood may follow the flood itself; elsewhere a flood has
    only failed."""
    return scene in (("scar", "insight") if room.stage.scar == "flood" else ("failed",))


def _condition(
    room: Room,
    scene: SceneName,
    condition: Condition,
    path: tuple[Step, ...],
    words: dict[str, tuple[str, ...]],
) -> Iterator[Fault]:
    name, value = condition.fact, condition.value
    if name not in FACTS:
        yield (*path, "fact"), "unknown-fact", _no_fact(name)
        return
    fact = _as_here(room, FACTS[name])
    yield from _unknown_here(room, scene, fact, (*path, "fact"))
    kind = "bool" if isinstance(value, bool) else "text" if isinstance(value, str) else "number"
    if kind != fact.kind:
        yield (*path, "value"), "condition", f"{name!r} is a {fact.kind}, and {value!r} a {kind}"
    elif kind != "number" and condition.op not in ("==", "!="):
        yield (*path, "op"), "condition", f"{name!r} is a {kind}: compare with == or !="
    legal = words.get(name, fact.words)
    if kind == "text" and legal and value not in legal:
        nearest = nearest_name(str(value), legal)
        fault = f"{name!r} is never {value!r} here; nearest: {nearest!r}"
        yield (*path, "value"), "condition", fault


def _words(room: Room, scene: SceneName) -> dict[str, tuple[str, ...]]:
    """What text facts can be in this scene of this stage, where that is narrower than anywhere."""
    goals = tuple(goal.metric for goal in room.stage.goals)
    # A flood ends the runs before most goals are measured: none may be known to be broken.
    words = {"broken_goal": (*goals, "") if scene == "scar" else goals or ("",)}
    if scene in _VERDICTS:
        words["verdict"] = _VERDICTS[scene]
    if room.by_choice and room.stage.guess is not None:
        words["guess"] = room.stage.guess.choices
        words["truth"] = (*room.stage.guess.choices, "none")
    return words


def _given(room: Room, scene: SceneName) -> dict[str, FactValue]:
    """Facts that have one value whenever this scene is told."""
    given: dict[str, FactValue] = {}
    if scene in ("passed", "undecided", *_OF_A_SCAR) or not _may_flood(room, scene):
        given["flooded"] = scene == "scar" and room.stage.scar == "flood"
    if room.stage.scar == "cliff" and scene in ("failed", *_OF_A_SCAR):
        given["fallen"] = scene == "scar"
    if scene in ("passed", "descent", "insight"):
        given["met"] = True
    if scene in _OF_A_SCAR:
        given["scar"] = scene == "scar"
    elif room.stage.scar is None:
        given["scar"] = False
    elif scene == "insight":
        given["scar"] = True
    return given


def _asked(room: Room, conditions: Sequence[Condition]) -> list[Fact]:
    names = dict.fromkeys(one.fact for one in conditions if one.fact in FACTS)
    return [_as_here(room, FACTS[name]) for name in names]


def _as_here(room: Room, fact: Fact) -> Fact:
    if fact.name in EITHER and room.by_choice:
        return Fact(fact.name, "text", fact.known, fact.doc)
    return fact


def _no_fact(name: str) -> str:
    return f"no fact is named {name!r}; nearest: {nearest_name(name, FACTS)}"


def _show(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)
