"""A worker client without a process: it answers what a test tells it to, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from canned_trials import CAPABILITIES, MACHINE, MODEL, make_result

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
    TrialDone,
)
from engine.trial import TrialResult

Answer = TrialResult | Failed | Exception


class CannedWorker:
    """Answers trials with `answers` in turn, then with passing results for ever.

    `hold` makes a trial wait until `abort` is called; `machine` is what calibrating it finds.
    """

    def __init__(self, *answers: Answer, hold: bool = False, load: Answer | None = None) -> None:
        self.answers = list(answers)
        self.hold = hold
        self.load = load
        self.machine = MACHINE
        self.commands: list[Any] = []
        self.starts = 0
        self.stopped = False
        self.environment: dict[str, str] = {}
        self._aborted = asyncio.Event()
        self._jobs = 0

    def make(self, worker: str | None, device: str, environment: Mapping[str, str]) -> CannedWorker:
        """In the place of `make_worker_client`."""
        self.environment = dict(environment)
        return self

    async def start(self) -> Hello:
        self.starts += 1
        return Hello(0, PROTOCOL, 4242, CAPABILITIES, "active")

    async def run(
        self,
        make_command: Callable[[int], Any],
        on_event: Callable[[AnyEvent], None] | None = None,
        deadline: float | None = None,
    ) -> AnyEvent:
        self._jobs += 1
        command = make_command(self._jobs)
        self.commands.append(command)
        await asyncio.sleep(0)
        if on_event is not None:
            on_event(Progress(self._jobs, "warmup", 0, 1))
        match command:
            case Load():
                return self._tell(self.load) or Loaded(
                    self._jobs, MODEL, "SmolLM2-135M-Instruct", "cd" * 32, "canned", 1.0
                )
            case Calibrate():
                return Calibrated(self._jobs, self.machine, False)
            case RunTrial():
                if self.hold:
                    await self._aborted.wait()
                    return Failed(self._jobs, "aborted", "aborted")
                told = self._tell(self.answers.pop(0) if self.answers else None)
                return told or TrialDone(self._jobs, make_result(command.spec.stage))
            case _:
                raise AssertionError(f"no answer was canned for {command}")

    async def abort(self) -> None:
        self._aborted.set()

    async def stop(self) -> None:
        self.stopped = True

    def _tell(self, answer: Answer | None) -> AnyEvent | None:
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, TrialResult):
            return TrialDone(self._jobs, answer)
        return answer
