"""One run of the engine process, as the interface holds it: spawn, lines, heartbeat, end.

It knows pipes and signals and nothing of jobs. Output is always drained: the event loop hands
every byte over as it comes, so the worker never waits for the interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import msgspec

from engine.clean import clean
from engine.serve.lines import LineAssembler

_TAIL_LINES = 40
_DRAIN = 0.5
"""Seconds that last words may still arrive after the process has ended."""
_LINGER = 2.0
"""Seconds a worker that closed its event pipe may take to end."""


class _Beat(msgspec.Struct, forbid_unknown_fields=True):
    beat: int


class WorkerProcess(asyncio.SubprocessProtocol):
    """`on_line` gets each line of the event stream, None for one over `line_limit` bytes.

    `ended` resolves to the return code once the process is gone and its last events were handed
    over. `beats` counts the heartbeats heard; other text on that pipe is kept for `tail()`.
    """

    def __init__(self, on_line: Callable[[bytes | None], None], line_limit: int) -> None:
        self._on_line = on_line
        self._events = LineAssembler(line_limit)
        self._beats = LineAssembler(4096)
        self._said: deque[str] = deque(maxlen=_TAIL_LINES)
        self._drained = False
        self.beats = 0
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_line: Callable[[bytes | None], None],
        line_limit: int,
    ) -> WorkerProcess:
        """Start `command` without a shell, in a session of its own.

        The session keeps the terminal's Ctrl+C away from it: the interface decides what an
        interrupt means. Raises OSError where the command cannot be started.
        """
        _, protocol = await asyncio.get_running_loop().subprocess_exec(
            lambda: cls(on_line, line_limit),
            *command,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        return protocol

    @property
    def alive(self) -> bool:
        return not self.ended.done()

    @property
    def pid(self) -> int:
        return self._transport.get_pid()

    def send(self, data: bytes) -> None:
        """Queue bytes for the worker's stdin; without effect once it is gone."""
        pipe = cast("asyncio.WriteTransport | None", self._transport.get_pipe_transport(0))
        if self.alive and pipe is not None and not pipe.is_closing():
            pipe.write(data)

    def note(self, text: str) -> None:
        """Keep a line for `tail()`; foreign text, cleaned here."""
        line = clean(text, limit=400, one_line=True)
        if line:
            self._said.append(line)

    def tail(self) -> str:
        """The last lines that were neither events nor heartbeats (ssh, a traceback at start)."""
        return "\n".join(self._said)

    async def end(self, grace: float) -> int:
        """TERM, `grace` seconds later KILL; returns the return code once the process is gone."""
        for sign in (signal.SIGTERM, signal.SIGCONT):  # a stopped process must wake to end
            self._signal(sign)
        done, _ = await asyncio.wait([self.ended], timeout=grace)
        if not done:
            self._signal(signal.SIGKILL)
        return await asyncio.shield(self.ended)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, sign: signal.Signals) -> None:
        """To the whole group: a wrapper (ssh, srun, a script) and what it started."""
        if self._transport.get_returncode() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), sign)

    # asyncio.SubprocessProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            for line in self._events.feed(data):
                self._on_line(line)
            return
        for line in self._beats.feed(data):
            try:
                msgspec.json.decode(line or b"", type=_Beat)
            except msgspec.DecodeError:
                self.note((line or b"").decode(errors="replace"))
            else:
                self.beats += 1

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._drained = True
            if self._transport.get_returncode() is None:
                asyncio.get_running_loop().call_later(_LINGER, self.kill)
            else:
                self._finish()

    def process_exited(self) -> None:
        if self._drained:
            self._finish()
        else:  # a grandchild may hold the pipe open: do not wait for it for ever
            asyncio.get_running_loop().call_later(_DRAIN, self._finish)

    def _finish(self) -> None:
        if not self.ended.done():
            self.ended.set_result(self._transport.get_returncode() or 0)
            self._transport.close()
