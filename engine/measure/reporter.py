"""What a job says while it runs, and how it hears that it should stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from engine.measure.timing import Clock, Phase
from engine.messages import Account, Event, Pages, Pressed, Progress, Step
from engine.quantised import Histogram, LayerError
from engine.serve.failures import Aborted
from engine.trial import Flood, Ledger

Side = Literal["candidate", "reference"]

TELL_INTERVAL = 0.5
"""Seconds between events of one kind while the clock runs: two a second cost a timed run nothing
that can be measured."""

PRESSED_INTERVAL = 0.05
"""The same while weights are quantised, where no clock runs: as often as a picture is drawn."""


class Reporter:
    """Emits Progress, Step, Account and Pages twice a second at most, Pressed twenty times; raises
    Aborted once the player stops. What a timed run tells is put together only when it is due."""

    def __init__(
        self, job: int, emit: Callable[[Event], None], aborted: Callable[[], bool], clock: Clock
    ) -> None:
        self._job = job
        self._emit = emit
        self._aborted = aborted
        self._clock = clock
        self._next: dict[type[Event], int] = {}
        self._unseen: Histogram | None = None

    def check(self) -> None:
        """Raises Aborted where the player stopped the job."""
        if self._aborted():
            raise Aborted

    def progress(
        self,
        phase: str,
        done: int,
        total: int,
        order: str = "",
        seconds_left: float | None = None,
        detail: str = "",
    ) -> None:
        self.check()
        self._emit(Progress(self._job, phase, done, total, order, seconds_left, detail))

    def step(
        self,
        phase: Phase,
        build: Side,
        batch: int,
        number: int,
        rates: Callable[[], Mapping[str, float]],
    ) -> None:
        """Called at every engine step: listens each time, speaks when half a second has passed."""
        self.check()
        if self._due(Step):
            self._emit(Step(self._job, phase, build, batch, number, dict(rates())))

    def account(self, build: Side, ledger: Callable[[], Ledger]) -> None:
        """The memory account now, where it is due."""
        if self._due(Account):
            self._emit(Account(self._job, build, ledger()))

    def flooded(self, build: Side, flood: Flood) -> None:
        """The budget has just broken: said at once."""
        self._emit(Account(self._job, build, flood.ledger, flood))

    def pages(self, make: Callable[[int], Pages]) -> None:
        """What the cache's parts hold now, where it is due. `make` is given the job's number."""
        if self._due(Pages):
            self._emit(make(self._job))

    def pressed(
        self, build: Side, error: LayerError, histogram: Histogram | None, done: int, total: int
    ) -> None:
        """A matrix has been quantised: said with its progress where that is due, and the last one
        always. A histogram that was not yet said comes with the next that is."""
        self.check()
        self._unseen = histogram or self._unseen
        if not self._due(Pressed, PRESSED_INTERVAL) and done < total:
            return
        self.progress("quantising", done, total)
        self._emit(Pressed(self._job, build, done, total, error, self._unseen))
        self._unseen = None

    def _due(self, kind: type[Event], interval: float = TELL_INTERVAL) -> bool:
        now = self._clock()
        if now < self._next.get(kind, now):
            return False
        self._next[kind] = now + round(interval * 1e9)
        return True
