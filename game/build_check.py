"""What a player may set in a hall: texts read as positions, positions checked against the hall."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from engine.config import complete
from engine.domains import KnobError, Value, nearest_name
from engine.knobs import find_knob, parse_setting
from engine.trial import TrialSpec
from game.outcome import SessionInputError
from story.schema import Stage

HOLD_REPEATS = 5
"""Runs of a trial that counts what is held: every run counts the same, and five are the fewest
whose median has a one-sided 95 % bound, for the crown of time."""


def find_stage(stages: Sequence[Stage], stage_id: str) -> Stage:
    """Raises SessionInputError: no such hall; names the nearest."""
    for stage in stages:
        if stage.id == stage_id:
            return stage
    nearest = nearest_name(stage_id, [stage.id for stage in stages])
    raise SessionInputError(f"no hall is named {stage_id!r}; nearest: {nearest}")


def find_open_stage(stages: Sequence[Stage], stage_id: str) -> Stage:
    """Raises SessionInputError as `find_stage`, or because the hall is not built yet."""
    stage = find_stage(stages, stage_id)
    if not stage.open:
        there = ", ".join(one.id for one in stages if one.open)
        raise SessionInputError(f"the hall {stage.id!r} is closed; open: {there}")
    return stage


def read_settings(stage: Stage, settings: Sequence[str]) -> dict[str, Value]:
    """`knob=value` texts as positions of this hall's knobs.

    Raises:
        SessionInputError: an unknown or foreign knob, a value it cannot take, a knob set twice to
            different values; names the nearest or the legal ones.
    """
    build: dict[str, Value] = {}
    for text in settings:
        try:
            name, value = _read_one(stage, text)
        except KnobError as error:
            raise SessionInputError(str(error)) from None
        if build.get(name, value) != value:
            raise SessionInputError(
                f"{name} is set twice, to {build[name]} and to {value}; set it once"
            )
        build[name] = value
    return build


def positions_of(stage: Stage, build: Mapping[str, Value]) -> dict[str, Value]:
    """The hall's build with the player's positions in it.

    Raises:
        SessionInputError: a knob this hall does not offer was moved, or a value is out of domain.
    """
    for name, value in build.items():
        if name not in stage.knobs and stage.build.get(name) != value:
            nearest = nearest_name(name, stage.knobs) if stage.knobs else "none"
            raise SessionInputError(
                f"{name} cannot be set in this hall; nearest: {nearest}; {_knobs_of(stage)}"
            )
    positions = {**stage.build, **build}
    try:
        complete(positions)
    except KnobError as error:
        raise SessionInputError(str(error)) from None
    return positions


def spec_of(stage: Stage, positions: dict[str, Value], seed: int) -> TrialSpec:
    spec = TrialSpec(
        stage=stage.id,
        kind=stage.trial,
        build=positions,
        reference=stage.reference_to(positions),
        seed=seed,
        bounds=stage.goals,
        probes=stage.probes,
        ladder=stage.ladder,
    )
    return replace(spec, repeats=HOLD_REPEATS) if stage.trial == "hold" else spec


def _read_one(stage: Stage, text: str) -> tuple[str, Value]:
    """One setting; a knob of another hall is told apart from one that is not there at all."""
    try:
        return parse_setting(text, stage.knobs)
    except KnobError as error:
        foreign = _foreign_knob(stage, text.partition("=")[0].strip())
        if foreign is None:
            raise error from None
    raise KnobError(f"{foreign} cannot be set in this hall; {_knobs_of(stage)}")


def _foreign_knob(stage: Stage, name: str) -> str | None:
    """The full name of a knob that exists and is not this hall's; None otherwise."""
    try:
        found = find_knob(name).name
    except KnobError:
        return None
    return found if found not in stage.knobs else None


def _knobs_of(stage: Stage) -> str:
    return f"this hall's knobs: {', '.join(stage.knobs) or 'none'}"
