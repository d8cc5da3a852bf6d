"""The interface's side of the engine process: start it, give it jobs, survive it.

Torch-free. One job at a time: its events are streamed to a callback and its answer is returned.
A worker that dies, falls silent, passes a deadline or breaks the protocol costs that one job
(WorkerDied); the next job starts a new worker and loads the same model again.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from engine.client_conversation import Conversation, OnEvent
from engine.client_terms import Limits, WorkerDied
from engine.machine import worker_environment
from engine.messages import AnyCommand, AnyEvent, Calibrated, Failed, Hello, Load, Loaded
from engine.serve.lifeline import PARENT_VARIABLE

__all__ = ["Limits", "RestartLimit", "State", "WorkerClient", "WorkerDied", "worker_command"]

State = Literal["absent", "starting", "idle", "busy", "died"]


class RestartLimit(WorkerDied):
    """The worker died too often in a short time; starting it again is refused for a while."""


def worker_command(text: str | None) -> tuple[str, ...] | None:
    """A `--worker` option as an argument list; None (this machine's own worker) stays None.

    Split as a shell would, and never run by one. Raises ValueError on open quotes or nothing.
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


class WorkerClient:
    """A worker that is started when it is needed and again after it died.

    `command` None runs the engine on this machine; otherwise it is an argument list whose stdin,
    stdout and stderr speak the protocol (see `worker_command`). `on_state` hears each change of
    `state`. `environment` is added to the worker's.
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
        self._command = tuple(command or _local_command(device))
        self._on_state = on_state
        self._environment = dict(environment or {})
        self._limits = limits or Limits()
        self._lock = asyncio.Lock()
        self._talk: Conversation | None = None
        self._opening: asyncio.Task[Conversation] | None = None
        self._died = False
        self._restarts: deque[float] = deque()
        self._policy: dict[str, str] = {}
        self._abort_asked = False
        self._last_job = 0
        self._model: tuple[str, str] | None = None
        self._model_loaded = False
        self.state: State = "absent"

    @property
    def hello(self) -> Hello | None:
        """What the running worker said of itself; None while there is none."""
        return self._talk.hello if self._talk is not None and self._talk.alive else None

    async def start(self) -> Hello:
        """The worker's Hello, starting it if it is not running.

        Raises:
            WorkerDied: it could not be started, or did not introduce itself in time.
            RestartLimit: it died too often lately.
        """
        async with self._lock:
            return (await self._ensure()).hello

    async def run(
        self,
        make_command: Callable[[int], AnyCommand],
        on_event: OnEvent | None = None,
        deadline: float | None = None,
    ) -> AnyEvent:
        """Run one job and return the event that closes it: its answer, or Failed.

        `make_command` puts the job number it is given into a command. Events before the answer go
        to `on_event`; `deadline` is in seconds (its default depends on the kind of command).
        Calls wait for one another. Cancelling a call stops its job in the worker.

        Raises:
            WorkerDied: the worker ended, or had to be ended, before it answered.
            RestartLimit: it died too often lately.
        """
        async with self._lock:
            self._abort_asked = False
            talk = await self._ensure()
            self._set_state("busy")
            try:
                return await self._run(talk, make_command, on_event, deadline)
            finally:
                self._look()

    async def abort(self) -> None:
        """Stop the job in flight and wait until it has closed; a worker that is deaf is ended.

        The job's own call returns Failed(kind="aborted"), or its answer where that was faster.
        """
        self._abort_asked = True
        if self._talk is not None:
            await self._talk.abort()

    async def stop(self) -> None:
        """End the worker: Shutdown, then TERM, then KILL. Afterwards no process is left.

        A job in flight raises WorkerDied(cause="stopped") to its caller.
        """
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._talk is not None:
            await self._talk.close()
            self._look()

    async def _run(
        self,
        talk: Conversation,
        make_command: Callable[[int], AnyCommand],
        on_event: OnEvent | None,
        deadline: float | None,
    ) -> AnyEvent:
        command = make_command(self._next_job())
        if self._model is not None and not self._model_loaded and not isinstance(command, Load):
            restored = await talk.run(Load(self._next_job(), *self._model), on_event, None)
            if isinstance(restored, Failed):
                return restored
            self._model_loaded = True
            command = make_command(self._next_job())
        if self._abort_asked:  # while the worker was starting: there was no job to stop yet
            return Failed(job=command.job, kind="aborted", message="stopped")
        answer = await talk.run(command, on_event, deadline)
        if isinstance(command, Load) and isinstance(answer, Loaded):
            self._model, self._model_loaded = (command.model, command.draft), True
        if isinstance(answer, Calibrated) and answer.restart:
            # OpenMP reads its wait policy once: a new worker takes the one just measured.
            await talk.close()
            self._policy = worker_environment(answer.profile.wait_policy)
            await self._open()
            answer = msgspec.structs.replace(answer, restart=False)
        return answer

    def _next_job(self) -> int:
        self._last_job += 1
        return self._last_job

    # Starting, and starting again

    async def _ensure(self) -> Conversation:
        if self._talk is not None:
            await self._talk.settle()
            self._look()
            if self._talk is not None:
                return self._talk
        if self._died:
            self._count_restart()
        return await self._open()

    async def _open(self) -> Conversation:
        self._set_state("starting")
        self._talk, self._model_loaded = None, False
        environment = self._environment | self._policy
        if self._local:
            environment[PARENT_VARIABLE] = str(os.getpid())
        self._opening = asyncio.create_task(
            Conversation.open(self._command, environment, self._limits, self._local)
        )
        try:
            self._talk = await self._opening
            self._died = False
            self._talk.when_over(self._look)
        except WorkerDied:
            self._died = True
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise WorkerDied("stopped", "the engine process was stopped") from None  # by `stop`
        finally:
            self._opening = None
            self._look()
        return self._talk

    def _look(self) -> None:
        """Let go of a conversation that is over, and say where things stand."""
        if self._talk is not None and not self._talk.alive:
            self._died = self._talk.death().cause != "stopped"
            self._talk = None
        if self._talk is None:
            self._set_state("died" if self._died else "absent")
        else:
            self._set_state("busy" if self._talk.busy else "idle")

    def _count_restart(self) -> None:
        """Refuse the fourth restart in five minutes. Raises RestartLimit."""
        now = asyncio.get_running_loop().time()
        while self._restarts and now - self._restarts[0] > self._limits.window:
            self._restarts.popleft()
        if len(self._restarts) >= self._limits.restarts:
            wait = self._limits.window - (now - self._restarts[0])
            raise RestartLimit(
                "exit",
                f"the engine process has ended {len(self._restarts) + 1} times in a short while, "
                f"so it rests. Nothing was lost: try again in {wait:.0f} s, or see what "
                "`latency-wall doctor` finds",
            )
        self._restarts.append(now)

    def _set_state(self, state: State) -> None:
        if state != self.state:
            self.state = state
            if self._on_state is not None:
                self._on_state(state)


def _local_command(device: str) -> tuple[str, ...]:
    """`-P`: a folder named `engine` in the current directory must not be taken for ours."""
    return (sys.executable, "-P", "-m", "engine.worker", "--device", device)
