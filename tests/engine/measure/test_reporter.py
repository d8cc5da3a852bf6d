"""What a job says while weights are quantised: often enough to watch, never more."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from engine.measure.quantising import watched_at
from engine.measure.reporter import Reporter
from engine.messages import Event, Pressed, Progress
from engine.quantised import Histogram, LayerError
from engine.recipe import Recipe
from engine.serve.failures import Aborted


@dataclass
class Desk:
    now: int = 0
    stopped: bool = False
    events: list[Event] = field(default_factory=list)

    def reporter(self) -> Reporter:
        return Reporter(3, self.events.append, lambda: self.stopped, lambda: self.now)

    @property
    def pressed(self) -> list[Pressed]:
        return [event for event in self.events if isinstance(event, Pressed)]


def drawn(layer: int) -> Histogram:
    return Histogram(layer, "down", -1.0, 1.0, (1, 2), (3, 0))


def test_twenty_matrices_a_second_are_told_and_the_last_always() -> None:
    desk = Desk()
    reporter = desk.reporter()
    for done in range(1, 121):  # one in ten milliseconds
        reporter.pressed("candidate", LayerError(done, "o", 0.1), None, done, 120)
        desk.now += 10_000_000
    told = [event.done for event in desk.pressed]
    assert told == [1, *range(6, 120, 5), 120]
    progress = [event for event in desk.events if isinstance(event, Progress)]
    assert [(event.phase, event.done, event.total) for event in progress] == [
        ("quantising", done, 120) for done in told
    ]


def test_a_histogram_that_was_not_told_comes_with_the_next_matrix() -> None:
    desk = Desk()
    reporter = desk.reporter()
    for done, histogram in enumerate((drawn(0), drawn(1), None, drawn(2), None), start=1):
        if done == 4:
            desk.now += 60_000_000
        reporter.pressed("reference", LayerError(0, "o", 0.1), histogram, done, 9)
    assert [(event.done, event.histogram) for event in desk.pressed] == [
        (1, drawn(0)),
        (4, drawn(2)),
    ]
    assert {event.build for event in desk.pressed} == {"reference"}
    assert {event.job for event in desk.pressed} == {3}


def test_a_player_who_stops_is_heard_at_every_matrix() -> None:
    desk = Desk()
    watch = watched_at(desk.reporter(), "candidate")
    watch.pressed(LayerError(0, "qkv", 0.1), None, 1, 4)
    desk.stopped = True
    for call in (watch.check, lambda: watch.pressed(LayerError(0, "o", 0.1), None, 2, 4)):
        with pytest.raises(Aborted):
            call()
    assert len(desk.pressed) == 1


@pytest.mark.parametrize(("tokens", "phase"), [(0, "quantising"), (512, "calibrating")])
def test_a_method_that_reads_text_first_says_so(tokens: int, phase: str) -> None:
    desk = Desk()
    watched_at(desk.reporter(), "candidate").begin(Recipe("awq", tokens, ()))
    (event,) = desk.events
    assert isinstance(event, Progress)
    assert (event.phase, event.detail) == (phase, "awq")
