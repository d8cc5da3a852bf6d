"""The engine process as the interface knows it, and how each of its events changes that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from engine.messages import AnyEvent

EnginePhase = Literal["asleep", "waking", "loading", "calibrating", "awake", "failed"]
TIMED: frozenset[EnginePhase] = frozenset({"calibrating"})
"""Phases in which something is on the clock, so that the interface must be calm."""


@dataclass(frozen=True)
class EngineState:
    """`share` is how much of the phase is done (0 to 1); `seconds_left` None when unknown.

    `trouble` is the error's own words and `kind` its class name, where the phase is "failed".
    """

    phase: EnginePhase = "asleep"
    share: float | None = None
    seconds_left: float | None = None
    trouble: str = ""
    kind: str = ""

    @property
    def timed(self) -> bool:
        return self.phase in TIMED

    @property
    def busy(self) -> bool:
        return self.phase in ("waking", "loading", "calibrating")


def heard(state: EngineState, event: AnyEvent) -> EngineState:
    """The state after `event`; events that say nothing of waking leave it as it was."""
    from engine.messages import Calibrated, Hello, Loaded, Progress

    match event:
        case Hello():
            return EngineState("loading")
        case Loaded():
            return replace(state, share=1.0, seconds_left=None)
        case Progress(phase="loading" | "calibrating" as phase):
            share = event.done / event.total if event.total > 0 else None
            return EngineState(
                "loading" if phase == "loading" else "calibrating", share, event.seconds_left
            )
        case Calibrated():
            return replace(state, share=1.0, seconds_left=None)
        case _:
            return state
