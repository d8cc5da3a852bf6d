"""What a job says while it runs, and how it hears that it should stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.measure.timing import Clock, Phase
from engine.messages import Event, Progress, Step
from engine.serve.failures import Aborted

STEP_INTERVAL = 0.5
"""Seconds between Step events: two a second cost a timed run nothing that can be measured."""


class Reporter:
    """Emits Progress and, twice a second at most, Step; raises Aborted once the player stops."""

    def __init__(
        self, job: int, emit: Callable[[Event], None], aborted: Callable[[], bool], clock: Clock
    ) -> None:
        self._job = job
        self._emit = emit
        self._aborted = aborted
        self._clock = clock
        self._next_step: int | None = None

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
        build: str,
        batch: int,
        number: int,
        rates: Callable[[], Mapping[str, float]],
    ) -> None:
        """Called at every engine step: listens each time, speaks when half a second has passed."""
        self.check()
        now = self._clock()
        if self._next_step is not None and now < self._next_step:
            return
        self._next_step = now + round(STEP_INTERVAL * 1e9)
        side = "candidate" if build == "candidate" else "reference"
        self._emit(
            Step(
                job=self._job,
                phase=phase,
                build=side,  # type: ignore[arg-type]
                batch=batch,
                position=number,
                seconds_per_token=dict(rates()),
            )
        )
