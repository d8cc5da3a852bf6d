"""The worker's outgoing events: one writer thread, high-rate events thinned.

The engine's thread never waits for the interface to read: it leaves an event here and goes on,
so a slow or stopped interface cannot stretch a timed run.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from engine.messages import Account, Event, Pages, Progress, Step, Tokens, encode

RATE = 20.0
"""Most events of one high-rate kind a second."""


def write_all(fd: int, data: bytes) -> None:
    """Write every byte. Raises OSError where the other end is gone."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Outbox:
    """Events in the order they were put, except that what comes often is thinned.

    At most `rate` a second of each of those kinds is written: Tokens are joined, so no text is
    lost; of the others (Step, Progress, Account, Pages) the last one stands for those it replaced.
    Any other event, and an Account of a flood, first lets go of what is held, so a job's last
    Progress and Tokens always precede its answer.
    `on_broken` is called, from the writer thread, when the other end no longer takes events.
    """

    def __init__(self, fd: int, on_broken: Callable[[], None], rate: float = RATE) -> None:
        self._fd = fd
        self._on_broken = on_broken
        self._interval = 1.0 / rate
        self._changed = threading.Condition()
        self._ready: deque[Event] = deque()
        self._held: dict[type[Event], Event] = {}
        self._due: dict[type[Event], float] = {}
        self._writing = False
        self._broken = False
        threading.Thread(target=self._write_forever, name="outbox", daemon=True).start()

    def put(self, event: Event) -> None:
        with self._changed:
            if _is_thinned(event):
                self._held[type(event)] = _merge(self._held.get(type(event)), event)
            else:
                self._ready.extend(self._held.values())
                self._held.clear()
                self._ready.append(event)
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait until everything put so far is written; False if `timeout` seconds were short."""
        with self._changed:
            self._ready.extend(self._held.values())
            self._held.clear()
            self._changed.notify_all()
            return self._changed.wait_for(self._settled, timeout)

    def _settled(self) -> bool:
        return self._broken or not (self._ready or self._held or self._writing)

    def _write_forever(self) -> None:
        while True:
            with self._changed:
                events = self._take()
            try:
                write_all(self._fd, b"".join(encode(event) for event in events))
            except OSError:
                with self._changed:
                    self._broken = True
                    self._changed.notify_all()
                self._on_broken()
                return
            with self._changed:
                self._writing = False
                self._changed.notify_all()

    def _take(self) -> list[Event]:
        """Wait for events that may be written now. The lock is held; waiting lets go of it."""
        while True:
            now = time.monotonic()
            events = list(self._ready)
            self._ready.clear()
            for kind in [kind for kind in self._held if self._due.get(kind, 0.0) <= now]:
                events.append(self._held.pop(kind))
            if events:
                for event in events:
                    self._due[type(event)] = now + self._interval
                self._writing = True
                return events
            waits = [self._due[kind] - now for kind in self._held]
            self._changed.wait(min(waits) if waits else None)


def _is_thinned(event: Event) -> bool:
    """A flood happens once: nothing may stand for it."""
    if isinstance(event, Account):
        return event.flood is None
    return isinstance(event, Progress | Step | Pages | Tokens)


def _merge(held: Event | None, event: Event) -> Event:
    """What stands for both; Tokens of one job join, anything else is replaced."""
    if isinstance(held, Tokens) and isinstance(event, Tokens) and held.job == event.job:
        return msgspec.structs.replace(event, text=held.text + event.text)
    return event
