"""What the interface expects of its engine process: answers, limits of patience, ways to end."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from engine.messages import (
    Bench,
    BenchDone,
    Calibrate,
    Calibrated,
    Chat,
    ChatDone,
    Command,
    Configure,
    Event,
    Load,
    Loaded,
    Ready,
    RunTrial,
    TrialDone,
)
from engine.serve.lines import LINE_LIMIT

DeathCause = Literal["start", "exit", "silent", "deadline", "protocol", "abort", "stopped"]
ANSWERS: Mapping[type[Command], type[Event]] = {
    Load: Loaded,
    Calibrate: Calibrated,
    Configure: Ready,
    RunTrial: TrialDone,
    Chat: ChatDone,
    Bench: BenchDone,
}
DEADLINES: Mapping[type[Command], float] = {
    Load: 300.0,
    Calibrate: 300.0,
    Configure: 30.0,
    RunTrial: 1800.0,
    Chat: 600.0,
    Bench: 1800.0,
}


class WorkerDied(Exception):
    """The engine process ended, or had to be ended, before it answered.

    `cause` is one of DeathCause, `reason` a sentence to show, `log_tail` the last lines it left
    (cleaned, may be empty). The job it held has no result and must cost the player nothing.
    """

    def __init__(self, cause: DeathCause, reason: str, log_tail: str = "") -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason
        self.log_tail = log_tail


@dataclass(frozen=True)
class Limits:
    """Seconds, except `restarts` (within `window` seconds) and `line_bytes`.

    `hello` covers the import of torch from a cold disk, or a queue before a remote machine.
    `silence` is the longest gap between heartbeats, which come from a thread of their own.
    `abort` is how long a job may take to stop, `term` the time between TERM and KILL.
    """

    hello: float = 180.0
    silence: float = 15.0
    abort: float = 5.0
    term: float = 3.0
    shutdown: float = 3.0
    restarts: int = 3
    window: float = 300.0
    line_bytes: int = LINE_LIMIT
    deadlines: Mapping[type[Command], float] = field(default_factory=lambda: DEADLINES)


def describe_end(status: int) -> str:
    """A return code in words; negative is the signal, as is 128 + signal through a shell."""
    number = -status if status < 0 else status - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"the engine process ended by itself (status {status})"
    hint = ", often for lack of memory" if name == "SIGKILL" else ""
    return f"the engine process was killed by {name}{hint}"
