"""Can this machine show what a hall teaches? From its measured ceilings; nothing is timed here.

A hall whose lesson is bytes needs a decode step that waits for them. Where calling the operators
takes longer, as on a large GPU with a small model, fewer bytes buy nothing, and the hall says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.capabilities import Capabilities
from engine.config import EngineConfig
from engine.machine import Ceilings, MachineProfile
from engine.model.config import ModelConfig
from engine.model.published import PUBLISHED
from engine.price import price_on
from engine.roofline import MetricError, floor_seconds
from game.rules.memory_facts import build_config
from story.facts import FactValue
from story.schema import Stage

ROOM = 0.8
"""Share of the memory that a model named instead may take."""


@dataclass(frozen=True)
class Lesson:
    """Seconds a decode step of the hall's reference takes for its bytes, and for its calls alone.

    `shown_by` names the smallest published model that would show the lesson here; "" where the
    loaded one does, or none fits.
    """

    bytes_seconds: float
    launch_seconds: float
    shown_by: str = ""

    @property
    def hidden(self) -> bool:
        return self.launch_seconds > self.bytes_seconds


def lesson_of(
    stage: Stage,
    model: ModelConfig | None,
    capabilities: Capabilities | None,
    machine: MachineProfile | None,
) -> Lesson | None:
    """None for a hall that teaches something else, and until machine and model are known."""
    if stage.lesson != "bytes" or model is None or capabilities is None or machine is None:
        return None
    config = build_config(stage.reference)
    if config is None:
        return None
    here = _measure(config, model, capabilities, machine.ceilings)
    if here is None or not here.hidden:
        return here
    for name, larger in PUBLISHED.items():
        if larger.matrix_elements <= model.matrix_elements:
            continue
        there = _measure(config, larger, capabilities, machine.ceilings, ROOM)
        if there is not None and not there.hidden:
            return Lesson(here.bytes_seconds, here.launch_seconds, name)
    return here


def lesson_facts(lesson: Lesson | None) -> dict[str, FactValue]:
    """`shown_by` is left out where there is nothing to name."""
    if lesson is None:
        return {}
    facts: dict[str, FactValue] = {
        "lesson_hidden": lesson.hidden,
        "bytes_ms": lesson.bytes_seconds * 1e3,
        "launch_ms": lesson.launch_seconds * 1e3,
        "shown_elsewhere": bool(lesson.shown_by),
    }
    return facts | ({"shown_by": lesson.shown_by} if lesson.shown_by else {})


def _measure(
    config: EngineConfig,
    model: ModelConfig,
    capabilities: Capabilities,
    ceilings: Ceilings,
    room: float = math.inf,
) -> Lesson | None:
    """None for a precision that was never measured, and for a model that takes more than `room` of
    the memory."""
    try:
        cost = price_on(config, model, capabilities)
        floors = floor_seconds(cost.decode, cost.precision, ceilings)
    except (ValueError, MetricError):
        return None
    if cost.total > room * capabilities.memory_bytes:
        return None
    return Lesson(floors["bandwidth"], floors["launch overhead"])
