"""The worker's loop: commands in, one job at a time, exactly one answer a job.

It knows the protocol and nothing of models: what a command does is in the table of handlers.
"""

from __future__ import annotations

import os
import queue
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from engine.messages import (
    Abort,
    AnyCommand,
    Command,
    Event,
    Failed,
    Hello,
    Shutdown,
    decode_command,
)
from engine.serve.failures import Aborted, failure
from engine.serve.lifeline import end_now
from engine.serve.lines import LINE_LIMIT, LineAssembler
from engine.serve.outbox import Outbox
from engine.serve.streams import Streams

_READ = 64 * 1024
_LAST_WORDS = 2.0
"""Seconds the worker waits, when it ends, for the interface to take what is still unsaid."""


@dataclass(frozen=True)
class Desk:
    """What a handler is given beside its command.

    `aborted()` turns true when the player stops the job; `check()` raises Aborted then.
    """

    job: int
    emit: Callable[[Event], None]
    aborted: Callable[[], bool]

    def check(self) -> None:
        if self.aborted():
            raise Aborted


Handler = Callable[[Any, Desk], Event]
"""Takes a command and a desk; returns the event that answers the job, or raises."""

Handlers = Mapping[type[Command], Handler]
Prepared = tuple[Hello, Callable[[], Handlers]]
Prepare = Callable[[], Prepared]
"""What a worker says first, and how it then gets its handlers, which takes more imports."""


class Worker:
    """Reads commands in a thread of its own, so that Abort and the parent's end are heard in
    mid-job; runs the jobs, in order, in the thread that calls `serve`."""

    def __init__(self, streams: Streams, line_limit: int = LINE_LIMIT) -> None:
        self._streams = streams
        self._lines = LineAssembler(line_limit)
        self._outbox = Outbox(streams.events, on_broken=end_now)
        self._jobs: queue.SimpleQueue[AnyCommand | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open: set[int] = set()
        self._stopped: set[int] = set()

    def serve(self, prepare: Prepare) -> int:
        """Say hello, then work until Shutdown. Returns the process's exit status.

        `prepare` runs after the reader has started, because it imports torch: a parent that ends
        meanwhile still takes the worker with it.
        """
        threading.Thread(target=self._read_forever, name="commands", daemon=True).start()
        try:
            hello, lay_out = prepare()
            self._outbox.put(hello)
            handlers = lay_out()
        except Exception as error:
            self._outbox.put(self._explain(0, error))
            self._outbox.flush(_LAST_WORDS)
            return 1
        while (command := self._jobs.get()) is not None:
            self._outbox.put(self._answer(handlers, command))
        self._outbox.flush(_LAST_WORDS)
        return 0

    def _answer(self, handlers: Handlers, command: AnyCommand) -> Event:
        desk = Desk(command.job, self._outbox.put, lambda: command.job in self._stopped)
        try:
            desk.check()
            return handlers[type(command)](command, desk)
        except Exception as error:
            return self._explain(command.job, error)
        finally:
            with self._lock:
                self._open.discard(command.job)
                self._stopped.discard(command.job)

    def _explain(self, job: int, error: Exception) -> Failed:
        """The traceback goes to the log alone; the interface gets a sentence."""
        if not isinstance(error, Aborted):
            traceback.print_exception(error)
        return failure(job, error)

    def _read_forever(self) -> None:
        while True:
            try:
                data = os.read(self._streams.commands, _READ)
            except OSError:
                data = b""
            if not data:  # the interface is gone: nobody is left to answer
                end_now()
            for line in self._lines.feed(data):
                self._take(line)

    def _take(self, line: bytes | None) -> None:
        if line is None:
            self._refuse("a command longer than the worker takes")
            return
        if not line.strip():
            return
        try:
            command = decode_command(line)
        except (msgspec.DecodeError, RecursionError) as error:
            self._refuse(f"not a command: {error}")
            return
        if isinstance(command, Shutdown):
            with self._lock:
                self._stopped |= self._open
            self._jobs.put(None)
        elif isinstance(command, Abort):
            with self._lock:
                self._stopped |= {command.job} & self._open
        elif command.job <= 0:
            self._refuse(f"job numbers start at 1, not {command.job}")
        else:
            with self._lock:
                self._open.add(command.job)
            self._jobs.put(command)

    def _refuse(self, why: str) -> None:
        self._outbox.put(failure(0, ValueError(why), kind="input"))
