"""An engine that answers at once with canned trials, for a real session on a temporary disk.

It stands where the worker process would: everything above it (session, judge, ledger, records,
facts) is the real thing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from canned_memory import abyss_case, account_events
from canned_serving import pages_events
from canned_trials import CAPABILITIES, MACHINE, MODEL, make_result

from engine.client import WorkerDied
from engine.messages import (
    PROTOCOL,
    AnyEvent,
    Calibrate,
    Calibrated,
    Failed,
    Hello,
    Load,
    Loaded,
    Progress,
    RunTrial,
    Step,
    TrialDone,
)
from engine.trial import TrialResult
from game.session import Session

Answer = Callable[[RunTrial], TrialResult]


def by_build(command: RunTrial) -> TrialResult:
    """Batch 8 in bfloat16 passes, batch 8 in float32 straddles, anything else fails.

    In the abyss 8 bits at batch 8 pass, and what the vessel cannot hold floods; in the array paged
    and shared passes.
    """
    build = dict(command.spec.build)
    if command.spec.stage == "abyss":
        return make_result("abyss", abyss_case(build), build)
    if command.spec.stage == "paging":
        paged = build.get("cache.layout") == "paged"
        return make_result("paging", "pass" if paged else "fail", build)
    low = build.get("run.precision") == "bfloat16"
    case = "fail"
    if build.get("schedule.batch") == 8:
        case = "pass" if low else "straddle"
    return make_result(command.spec.stage, case, build)  # type: ignore[arg-type]


class CannedEngine:
    """`hold` keeps a trial running after its events until `release`, `abort` or `die`."""

    def __init__(self, answer: Answer = by_build, hold: bool = False) -> None:
        self.answer = answer
        self.hold = hold
        self.trials: list[RunTrial] = []
        self.aborts = 0
        self.events: Iterable[AnyEvent] | None = None
        self._go = asyncio.Event()
        self._end = ""

    async def start(self) -> Hello:
        return Hello(0, PROTOCOL, 4242, CAPABILITIES, "active")

    async def run(
        self,
        make_command: Callable[[int], Any],
        on_event: Callable[[AnyEvent], None] | None = None,
        deadline: float | None = None,
    ) -> AnyEvent:
        command = make_command(len(self.trials) + 1)
        match command:
            case Load():
                return Loaded(command.job, MODEL, "SmolLM2-135M-Instruct", "cd" * 32, "x", 0.5)
            case Calibrate():
                return Calibrated(command.job, MACHINE, False)
            case RunTrial():
                return await self._trial(command, on_event)
        raise AssertionError(f"the canned engine knows no {command!r}")

    async def _trial(
        self, command: RunTrial, on_event: Callable[[AnyEvent], None] | None
    ) -> AnyEvent:
        self.trials.append(command)
        for event in self.events if self.events is not None else self._watched(command):
            if on_event is not None:
                on_event(event)
            await asyncio.sleep(0)
        if self.hold:
            self._go.clear()
            await self._go.wait()
        if self._end == "abort":
            self._end = ""
            return Failed(command.job, "aborted", "aborted")
        if self._end == "die":
            self._end = ""
            raise WorkerDied("exit", "the engine process ended (signal 9)")
        return TrialDone(command.job, self.answer(command))

    def _watched(self, command: RunTrial) -> list[AnyEvent]:
        if command.spec.stage == "abyss":
            return account_events(abyss_case(dict(command.spec.build)), command.job)
        if command.spec.stage == "paging":
            return pages_events("pass", command.job)
        return pair_events(command.job)

    def release(self) -> None:
        self._go.set()

    def die(self) -> None:
        self._end = "die"
        self._go.set()

    async def abort(self) -> None:
        self.aborts += 1
        self._end = "abort"
        self._go.set()

    async def stop(self) -> None:
        self._go.set()


def pair_events(job: int = 1) -> list[AnyEvent]:
    """A paired trial in its fifth pair: B is on the clock, decoding."""
    reference = {"prefill": 1.25e-3, "decode": 27e-3}
    candidate = {"prefill": 0.6e-3, "decode": 17e-3 / 8}
    return [
        Progress(job, "warmup", 2, 4),
        Step(job, "decode", "reference", 1, 140, reference),
        Progress(job, "pairs", 4, 8, order="B", seconds_left=14.0),
        Step(job, "decode", "candidate", 8, 12, candidate),
    ]


def open_session(
    home: Path, engine: CannedEngine, language: str = "en", **settings: Any
) -> Session:
    """A real session of a new profile on `home`, its engine canned, its text shown at once."""
    session = Session.open(home, make_client=lambda *_: engine)
    session.create_profile("Lin")
    session.update_settings(
        language=language, **{"reduced_motion": True, "text_speed": 0, **settings}
    )
    return session
