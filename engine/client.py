"""The interface's side of the engine process: start it, give it jobs, survive it.

Torch-free. One job at a time; its events are streamed to a callback and its answer is returned.
A worker that dies, falls silent, passes a deadline or breaks the protocol ends that one job with
WorkerDied, and the next job starts a new worker with the same model loaded. Nothing is measured
here: the clock below only guards against waiting for ever.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from engine.clean import clean
from engine.client_process import WorkerProcess
from engine.messages import (
    PROTOCOL,
    Abort,
    AnyCommand,
    AnyEvent,
    Bench,
    BenchDone,
    Calibrate,
    Calibrated,
    Chat,
    ChatDone,
    Command,
    Configure,
    Event,
    Failed,
    Hello,
    Load,
    Loaded,
    Ready,
    RunTrial,
    Shutdown,
    TrialDone,
    decode_event,
    encode,
)
from engine.paths import log_home
from engine.serve.lifeline import PARENT_VARIABLE
from engine.serve.lines import LINE_LIMIT
from engine.serve.streams import log_path

State = Literal["absent", "starting", "idle", "busy", "died"]
DeathCause = Literal[
    "start", "exit", "silent", "deadline", "protocol", "abort", "stopped", "restart limit"
]
OnEvent = Callable[[AnyEvent], None]

_ANSWERS: Mapping[type[Command], type[Event]] = {
    Load: Loaded,
    Calibrate: Calibrated,
    Configure: Ready,
    RunTrial: TrialDone,
    Chat: ChatDone,
    Bench: BenchDone,
}
_DEADLINES: Mapping[type[Command], float] = {
    Load: 300.0,
    Calibrate: 300.0,
    Configure: 30.0,
    RunTrial: 1200.0,
    Chat: 600.0,
    Bench: 1200.0,
}
_GREETING_LINES = 100
_LOG_TAIL = 4096


class WorkerDied(Exception):
    """The engine process ended, or had to be ended, before it answered.

    `cause` is one of DeathCause, `reason` a sentence to show, `log_tail` the last lines it left
    (cleaned; may be empty). The job it held has no result and must cost the player nothing.
    """

    def __init__(self, cause: DeathCause, reason: str, log_tail: str = "") -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason
        self.log_tail = log_tail


class RestartLimit(WorkerDied):
    """The worker died too often in a short time; starting it again is refused for a while."""


@dataclass(frozen=True)
class Limits:
    """Seconds, except `restarts` (in `window` seconds) and `line_bytes`.

    `hello` covers the import of torch from a cold disk. `silence` is the longest gap between
    heartbeats, which come from a thread of their own. `term` is the time between TERM and KILL.
    """

    hello: float = 120.0
    silence: float = 15.0
    abort: float = 5.0
    term: float = 3.0
    shutdown: float = 3.0
    restarts: int = 3
    window: float = 300.0
    line_bytes: int = LINE_LIMIT
    deadlines: Mapping[type[Command], float] = field(default_factory=lambda: _DEADLINES)


def worker_command(text: str | None) -> tuple[str, ...] | None:
    """A `--worker` option as an argument list, None for the worker on this machine.

    Split as a shell would, but never run by one. Raises ValueError on open quotes or nothing.
    """
    if text is None:
        return None
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"--worker {text!r}: {error}; close the quotation") from None
    if not words:
        raise ValueError('--worker is empty; for example: --worker "ssh box latency-wall worker"')
    return words


class _Job:
    """The job in flight. `answer` resolves to its closing event, or to why there is none."""

    def __init__(self, command: AnyCommand, on_event: OnEvent | None) -> None:
        self.command = command
        self.on_event = on_event
        self.answer: asyncio.Future[AnyEvent] = asyncio.get_running_loop().create_future()
        self.mishap: Exception | None = None


class WorkerClient:
    """A worker that is started when needed and started again when it died.

    `command` None runs the engine on this machine; otherwise it is an argument list whose stdin
    and stdout speak the protocol (`worker_command`). `on_state` hears every change of `state`.
    """

    def __init__(
        self,
        command: Sequence[str] | None = None,
        on_state: Callable[[State], None] | None = None,
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        device: str = "cpu",
    ) -> None:
        self._local = command is None
        self._command = (
            # -P: a folder called engine in the current directory must not be taken for ours.
            (sys.executable, "-P", "-m", "engine.worker", "--device", device)
            if command is None
            else tuple(command)
        )
        self._on_state = on_state
        self._environment = dict(environment or {})
        self._limits = limits or Limits()
        self._lock = asyncio.Lock()
        self._process: WorkerProcess | None = None
        self._greeting: asyncio.Future[Hello] | None = None
        self._greeting_lines = 0
        self._job: _Job | None = None
        self._jobs = 0
        self._death: WorkerDied | None = None
        self._must_count = False
        self._restarts: deque[float] = deque()
        self._model: str | None = None
        self._model_loaded = False
        self._ending: set[asyncio.Task[object]] = set()
        self.state: State = "absent"
        self.hello: Hello | None = None

    # What the interface calls

    async def start(self) -> Hello:
        """The worker's Hello, starting it if it is not running.

        Raises:
            WorkerDied: it could not be started, or did not introduce itself in time.
            RestartLimit: it died too often lately.
        """
        async with self._lock:
            return await self._ensure()

    async def run(
        self,
        make_command: Callable[[int], AnyCommand],
        on_event: OnEvent | None = None,
        deadline: float | None = None,
    ) -> AnyEvent:
        """Run one job and return the event that closes it: its answer, or Failed.

        `make_command` gets the job number to put into the command. Events before the answer go to
        `on_event`; `deadline` is in seconds (default by kind of command). A call waits for the
        job before it. Cancelling the call stops the job in the worker.

        Raises:
            WorkerDied: the worker ended, or was ended, before it answered.
            RestartLimit: it died too often lately.
        """
        async with self._lock:
            await self._ensure()
            command = make_command(self._next_job())
            if self._model is not None and not self._model_loaded and type(command) is not Load:
                restored = await self._run_job(
                    Load(job=command.job, model=self._model), on_event, None
                )
                if isinstance(restored, Failed):
                    return restored
                command = make_command(self._next_job())
            answer = await self._run_job(command, on_event, deadline)
            if isinstance(answer, Calibrated) and answer.restart:
                await self._take_new_wait_policy()
                answer = msgspec.structs.replace(answer, restart=False)
            return answer

    async def abort(self) -> None:
        """Stop the job in flight and wait until it has closed; ends a worker that does not."""
        if self._job is not None and self._process is not None:
            await self._abandon(self._process, self._job)

    async def stop(self) -> None:
        """End the worker: Shutdown, then TERM, then KILL. Afterwards no process is left."""
        process = self._process
        if process is not None and process.alive:
            self._blame(process, "stopped", "the engine process was stopped")
            process.send(encode(Shutdown(job=0)))
            done, _ = await asyncio.wait([process.ended], timeout=self._limits.shutdown)
            if not done:
                await process.end(self._limits.term)
        if self._ending:
            await asyncio.wait(self._ending)
        self._process = None
        self._must_count = False
        self._set_state("absent")

    # Starting, and starting again

    async def _ensure(self) -> Hello:
        if self._ending:
            await asyncio.wait(self._ending)
        if self._process is not None and self._process.alive and self.hello is not None:
            return self.hello
        if self._must_count:
            self._count_restart()
        return await self._launch()

    def _count_restart(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._restarts and now - self._restarts[0] > self._limits.window:
            self._restarts.popleft()
        if len(self._restarts) >= self._limits.restarts:
            wait = self._limits.window - (now - self._restarts[0])
            raise RestartLimit(
                "restart limit",
                f"the engine process ended {self._limits.restarts + 1} times in a short while and "
                f"rests now; nothing was lost. Try again in {wait:.0f} s, or let "
                "`latency-wall doctor` look at it",
                "" if self._death is None else self._death.log_tail,
            )
        self._restarts.append(now)

    async def _launch(self) -> Hello:
        self._set_state("starting")
        self.hello, self._death, self._model_loaded = None, None, False
        self._greeting = asyncio.get_running_loop().create_future()
        self._greeting_lines = 0
        environment = dict(self._environment)
        if self._local:
            environment[PARENT_VARIABLE] = str(os.getpid())
        try:
            process = await WorkerProcess.spawn(
                self._command, environment, self._hear, self._limits.line_bytes
            )
        except (OSError, ValueError) as error:
            self._set_state("died")
            raise WorkerDied(
                "start", f"cannot start {clean(self._command[0], one_line=True)}: {error}"
            ) from error
        self._process = process
        process.ended.add_done_callback(lambda ended: self._on_end(process, ended.result()))
        try:
            done, _ = await asyncio.wait(
                [self._greeting, process.ended],
                timeout=self._limits.hello,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            self._end_later(process, "stopped", "starting was given up")
            raise
        if self._greeting.done():
            self.hello = self._greeting.result()
            self._set_state("idle")
            return self.hello
        if not done:
            self._blame(
                process, "start", f"the engine said nothing for {self._limits.hello:.0f} s"
            )
        await process.end(self._limits.term)
        raise self._death or WorkerDied("start", "the engine process did not start")

    async def _take_new_wait_policy(self) -> None:
        """OpenMP reads its wait policy once: a new worker takes the one just calibrated."""
        process = self._process
        if process is None or not process.alive:
            return
        self._blame(process, "stopped", "the engine process starts again")
        process.send(encode(Shutdown(job=0)))
        done, _ = await asyncio.wait([process.ended], timeout=self._limits.shutdown)
        if not done:
            await process.end(self._limits.term)
        await self._launch()
