"""Signs of life, both ways: the worker's heartbeat, and its end when the parent ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from engine.serve.outbox import write_all

PARENT_VARIABLE = "LATENCY_WALL_PARENT"
"""Set by an interface that starts the worker directly: the process id to live and die with."""

_PR_SET_PDEATHSIG = 1


def end_now(status: int = 0) -> NoReturn:
    """End the process from any thread, in mid-operation, without tearing anything down."""
    os._exit(status)


def die_with_parent() -> None:
    """Ask the kernel (Linux) to kill this process when the one that started it dies.

    If that happened before the request was made, end at once: nobody would deliver the signal.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    expected = os.environ.pop(PARENT_VARIABLE, "")
    if expected.isdecimal() and int(expected) != os.getppid():
        end_now()


class Heartbeat:
    """One short line `{"beat": n}` each `interval` seconds on its own descriptor.

    It comes from a thread: a long operator call does not silence it, a stopped process does.
    After each beat it runs `chores` (cheap, about a microsecond each) and looks whether the
    parent is still the one it started with, for systems without a parent-death signal.
    """

    def __init__(
        self, fd: int, interval: float = 1.0, chores: tuple[Callable[[], None], ...] = ()
    ) -> None:
        self._fd = fd
        self._interval = interval
        self._chores = chores
        self._parent = os.getppid()
        self._stopped = threading.Event()
        threading.Thread(target=self._beat_forever, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _beat_forever(self) -> None:
        count = 0
        heard = True
        while True:
            if heard:
                count += 1
                try:
                    write_all(self._fd, b'{"beat": %d}\n' % count)
                except OSError:
                    heard = False  # a closed stderr; the parent watch below goes on
            for chore in self._chores:
                chore()
            if self._stopped.wait(self._interval):
                return
            if os.getppid() != self._parent:
                end_now()
