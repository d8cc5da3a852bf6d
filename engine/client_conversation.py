"""The protocol with one engine process, from its Hello to its end.

A conversation that breaks is over: the process is ended, the job in flight gets WorkerDied, and a
new conversation must be opened. Nothing is measured here; the clock only guards against waiting
for ever, and time during which the interface itself stood still does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence

import msgspec

from engine.clean import clean
from engine.client_process import WorkerProcess
from engine.client_terms import ANSWERS, DeathCause, Limits, WorkerDied, describe_end
from engine.messages import (
    PROTOCOL,
    Abort,
    AnyCommand,
    AnyEvent,
    Failed,
    Hello,
    Shutdown,
    decode_event,
    encode,
)
from engine.paths import log_home
from engine.serve.streams import log_path, read_tail

OnEvent = Callable[[AnyEvent], None]

_GREETING_LINES = 100
"""Lines of foreign text (a login shell's greeting) that may come before Hello."""


class _Job:
    """The job in flight.

    `closed` resolves to its closing event, or to the death that took it; `mishap` is what the
    caller's own `on_event` raised.
    """

    def __init__(self, command: AnyCommand, on_event: OnEvent | None) -> None:
        self.command = command
        self.on_event = on_event
        self.closed: asyncio.Future[AnyEvent | WorkerDied] = (
            asyncio.get_running_loop().create_future()
        )
        self.mishap: Exception | None = None


class Conversation:
    """One engine process and what is being said with it. Made by `open`."""

    hello: Hello
    _process: WorkerProcess

    def __init__(self, limits: Limits, local: bool) -> None:
        self._limits = limits
        self._local = local
        self._greeting: asyncio.Future[Hello] = asyncio.get_running_loop().create_future()
        self._greeting_lines = 0
        self._job: _Job | None = None
        self._death: WorkerDied | None = None
        self._background: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls, command: Sequence[str], environment: Mapping[str, str], limits: Limits, local: bool
    ) -> Conversation:
        """Start the process and wait for its Hello; `local` says its log is on this machine.

        Raises:
            WorkerDied: it cannot be started, ended early, or did not say hello in time.
        """
        self = cls(limits, local)
        try:
            self._process = await WorkerProcess.spawn(
                command, environment, self._hear, limits.line_bytes
            )
        except (OSError, ValueError) as error:
            name = clean(command[0], one_line=True)
            raise WorkerDied("start", f"cannot start {name}: {error}") from error
        self._process.ended.add_done_callback(self._on_end)
        try:
            hopes: list[asyncio.Future[Hello] | asyncio.Future[int]]
            hopes = [self._greeting, self._process.ended]
            await asyncio.wait(
                hopes,
                timeout=limits.hello,
                return_when=asyncio.FIRST_COMPLETED,
            )
        except asyncio.CancelledError:
            self._process.kill()
            await asyncio.wait([self._process.ended], timeout=limits.term)
            raise
        if self._greeting.done() and self.alive:
            self.hello = self._greeting.result()
            return self
        self._blame("start", f"the engine process said nothing for {limits.hello:g} s")
        await self._process.end(limits.term)
        raise self.death()

    @property
    def alive(self) -> bool:
        """Whether another job may be given to it."""
        return self._process.alive and self._death is None

    @property
    def busy(self) -> bool:
        return self._job is not None

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back once the process is gone, whatever the reason."""
        self._process.ended.add_done_callback(lambda _: callback())

    def death(self) -> WorkerDied:
        """Why this conversation is over, with the last lines the process left."""
        death = self._death or WorkerDied("exit", "the engine process ended")
        said = self._process.tail()
        log = read_tail(log_path(log_home(), self._process.pid)) if self._local else ""
        death.log_tail = "\n".join(part for part in (said, log) if part)
        return death

    async def run(
        self, command: AnyCommand, on_event: OnEvent | None, deadline: float | None
    ) -> AnyEvent:
        """One job: its events go to `on_event`, its closing event is returned.

        A cancelled call, or one whose `on_event` raises, stops the job before it comes back.
        Raises WorkerDied.
        """
        assert self._job is None, "one job at a time"
        if not self.alive:
            raise self.death()
        job = self._job = _Job(command, on_event)
        limit = self._limits.deadlines[type(command)] if deadline is None else deadline
        watch = asyncio.create_task(self._watch(job, limit))
        self._process.send(encode(command))
        try:
            outcome = await asyncio.shield(job.closed)
        except asyncio.CancelledError:
            await asyncio.shield(self._in_background(self._abandon(job)))
            raise
        finally:
            watch.cancel()
        if job.mishap is not None:
            raise job.mishap
        if isinstance(outcome, WorkerDied):
            raise outcome
        return outcome

    async def abort(self) -> None:
        """Stop the job in flight and wait until it has closed; a deaf worker is ended."""
        if self._job is not None:
            await asyncio.shield(self._in_background(self._abandon(self._job)))

    async def close(self) -> None:
        """Shutdown, then TERM, then KILL: afterwards no process is left."""
        if self._process.alive:
            self._blame("stopped", "the engine process was stopped")
            await asyncio.shield(self._in_background(self._shut_down()))
        await self.settle()

    async def settle(self) -> None:
        """Wait for what a cancelled caller left behind."""
        while self._background:
            await asyncio.wait(set(self._background))

    # Hearing

    def _hear(self, line: bytes | None) -> None:
        if self._death is not None:
            return
        if line is None:
            self._break("protocol", "the engine process sent a line longer than any message")
            return
        try:
            event = decode_event(line)
        except (msgspec.DecodeError, RecursionError) as error:
            if not self._greeting.done() and not line.startswith(b"{"):
                self._hear_greeting(line)
            else:
                self._process.note(line[:400].decode(errors="replace"))
                self._break("protocol", f"the engine process sent what is no event: {error}")
            return
        if self._greeting.done():
            self._hear_event(event)
        else:
            self._hear_hello(event)

    def _hear_greeting(self, line: bytes) -> None:
        """A login shell may print before the worker starts; kept for the log tail."""
        self._process.note(line[:400].decode(errors="replace"))
        self._greeting_lines += 1
        if self._greeting_lines > _GREETING_LINES:
            self._break("protocol", "the command printed text and no engine process answered")

    def _hear_hello(self, event: AnyEvent) -> None:
        if isinstance(event, Failed):
            self._break("start", f"the engine process could not start: {event.message}")
        elif not isinstance(event, Hello):
            self._break("protocol", f"the engine process began with {type(event).__name__}")
        elif event.protocol != PROTOCOL:
            self._break(
                "protocol",
                f"the engine process speaks protocol {event.protocol} and this program {PROTOCOL}:"
                " install the same version of Latency Wall on both sides",
            )
        else:
            self._greeting.set_result(event)

    def _hear_event(self, event: AnyEvent) -> None:
        job = self._job
        said = event.message if isinstance(event, Failed) else type(event).__name__
        if job is None:
            self._process.note(f"outside of a job: {said}")
            return
        if event.job != job.command.job:
            self._break("protocol", f"an event of job {event.job} in job {job.command.job}: {said}")
        elif isinstance(event, (Failed, ANSWERS[type(job.command)])):
            self._close_job(event)
        elif isinstance(event, (Hello, *ANSWERS.values())):
            self._break("protocol", f"{type(event).__name__} does not answer this job")
        elif job.on_event is not None and job.mishap is None:
            try:
                job.on_event(event)
            except Exception as error:
                job.mishap = error  # the caller's fault is raised to the caller, by `run`
                self._in_background(self._abandon(job))

    def _close_job(self, outcome: AnyEvent | WorkerDied) -> None:
        if self._job is not None:
            self._job.closed.set_result(outcome)
            self._job = None

    # Ending

    def _blame(self, cause: DeathCause, reason: str) -> None:
        """The first reason stands; what follows is its consequence."""
        if self._death is None:
            self._death = WorkerDied(cause, clean(reason, limit=600, one_line=True))

    def _break(self, cause: DeathCause, reason: str) -> None:
        """End the process; its end closes the job."""
        self._blame(cause, reason)
        self._in_background(self._terminate())

    def _on_end(self, ended: asyncio.Future[int]) -> None:
        self._blame("exit", describe_end(ended.result()))
        self._close_job(self.death())

    async def _terminate(self) -> None:
        await self._process.end(self._limits.term)

    async def _shut_down(self) -> None:
        self._process.send(encode(Shutdown(job=0)))
        await asyncio.wait([self._process.ended], timeout=self._limits.shutdown)
        await self._process.end(self._limits.term)

    async def _abandon(self, job: _Job) -> None:
        self._process.send(encode(Abort(job=job.command.job)))
        await asyncio.wait([job.closed], timeout=self._limits.abort)
        if not job.closed.done():
            self._blame("abort", "the engine process did not stop when asked, so it was ended")
            await self._process.end(self._limits.term)

    async def _watch(self, job: _Job, deadline: float) -> None:
        """End a process that has no heartbeat, or a job that takes too long.

        A tick counts for at most twice its length: when the interface itself was stopped or
        asleep, the worker must not pay for it.
        """
        loop = asyncio.get_running_loop()
        tick = min(self._limits.silence, deadline, 10.0) / 20
        spent = silent = 0.0
        beats, before = self._process.beats, loop.time()
        while True:
            await asyncio.sleep(tick)
            now = loop.time()
            step = min(now - before, 2 * tick)
            silent = silent + step if self._process.beats == beats else 0.0
            beats, before, spent = self._process.beats, now, spent + step
            if silent > self._limits.silence:
                self._break("silent", f"the engine process gave no sign of life for {silent:.0f} s")
                return
            if spent > deadline:
                self._break("deadline", f"the engine process took longer than {deadline:g} s")
                return

    def _in_background(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """A task that outlives its caller's cancellation; `settle` waits for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task
