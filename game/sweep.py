"""A grid of builds of one hall, run one after another, and which of them are worth having.

A sweep asks what no single trial answers: where the front lies between speed, memory and quality.
Its trials are practice: judged by the same rules, kept by nobody. A build that cannot run is a row
with its reason, not the end of the sweep.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from engine.domains import KnobError, Value
from engine.knobs import find_knob
from engine.metrics import METRICS
from engine.trial import TrialResult
from game.outcome import Outcome, SessionInputError
from game.rules.pareto import AXES, Point, front
from game.rules.verdict import Verdict
from story.schema import Stage

Build = dict[str, Value]
RunBuild = Callable[[Build], Awaitable[Outcome]]
"""Runs one build of the hall. Raises SessionInputError where it cannot be."""

BELIEVED = ("pass", "fail", "inconclusive")
"""Verdicts whose figures may stand on a front; `invalid` ones were measured wrongly."""


class SweepError(ValueError):
    """A grid that cannot be swept: says what was wrong and what would be right."""


@dataclass(frozen=True)
class Axis:
    """One knob and the values it takes, in the order they were given."""

    knob: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Row:
    """One build of the grid: what it measured, or why it could not run.

    `build` holds the swept knobs alone. `refused` is "" where a trial ran.
    """

    build: Build
    verdict: Verdict | None = None
    result: TrialResult | None = None
    refused: str = ""

    @property
    def word(self) -> str:
        return self.verdict.word if self.verdict is not None else "refused"

    @property
    def believed(self) -> bool:
        return self.word in BELIEVED

    def figure(self, metric: str) -> float | None:
        return self.verdict.metrics.get(metric) if self.verdict is not None else None


def parse_axis(text: str, allowed: Sequence[str]) -> Axis:
    """`batch=1,2,4` as an axis over one of the `allowed` knobs; a value named twice counts once.

    Raises:
        SweepError: no knob or no values, or a knob or value that cannot be; names what can.
    """
    name, equals, listed = text.partition("=")
    words = [word.strip() for word in listed.split(",")]
    if not equals or not name.strip() or not all(words):
        raise SweepError(f"{text!r} is not a range; write knob=a,b,c, for example batch=1,2,4")
    try:
        knob = find_knob(name.strip(), allowed)
        values = tuple(dict.fromkeys(knob.domain.parse(word) for word in words))
    except KnobError as error:
        raise SweepError(str(error)) from None
    return Axis(knob.name, values)


def grid(axes: Sequence[Axis], limit: int) -> tuple[Build, ...]:
    """Every combination of the axes' values, the last axis turning fastest.

    Raises:
        SweepError: no axis, a knob on two axes, or more than `limit` builds.
    """
    if not axes:
        raise SweepError("nothing to sweep; name a knob: --over batch=1,2,4")
    names = [axis.knob for axis in axes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SweepError(f"{twice} is swept twice; name all its values in one --over")
    size = 1
    for axis in axes:
        size *= len(axis.values)
    if size > limit:
        raise SweepError(
            f"the grid has {size} builds and the limit is {limit}; name fewer values, or raise it: "
            f"--limit {size}"
        )
    values = itertools.product(*(axis.values for axis in axes))
    return tuple(dict(zip(names, one, strict=True)) for one in values)


async def sweep(builds: Sequence[Build], run: RunBuild) -> AsyncIterator[Row]:
    """The rows of the grid, each as soon as it is known."""
    for build in builds:
        try:
            outcome = await run(build)
        except SessionInputError as error:
            yield Row(build, refused=str(error))
        else:
            yield Row(build, outcome.verdict, outcome.result)


def axes_of(stage: Stage, rows: Sequence[Row]) -> tuple[str, ...]:
    """What this hall's front weighs: its first goal's metric, memory and quality.

    A hall without goals is weighed as the crowns are. A metric that no row measured is left out.
    """
    first = (stage.goals[0].metric,) if stage.goals else AXES[:1]
    wanted = dict.fromkeys((*first, *AXES[1:]))
    return tuple(
        metric
        for metric in wanted
        if any(row.believed and row.figure(metric) is not None for row in rows)
    )


def front_of(rows: Sequence[Row], axes: Sequence[str]) -> frozenset[int]:
    """The numbers of the rows that no other row beats on every axis, beyond the dead band.

    A row that lacks one of the axes (it never came to run, or flooded) cannot be compared.
    """
    if not axes:
        return frozenset()
    points = [
        Point(str(number), "", row.verdict.metrics)
        for number, row in enumerate(rows)
        if row.verdict is not None and row.believed
    ]
    return frozenset(int(point.build) for point in front(points, axes))


def better_words(axes: Sequence[str]) -> str:
    """`throughput higher, memory lower`: which way each axis improves."""
    return ", ".join(f"{axis} {METRICS[axis].better}" for axis in axes)


def document(
    stage: Stage, axes: Sequence[Axis], fixed: Mapping[str, Value], seed: int, rows: Sequence[Row]
) -> dict[str, object]:
    """The sweep as JSON; keys are stable."""
    weighed = axes_of(stage, rows)
    best = front_of(rows, weighed)
    return {
        "stage": stage.id,
        "seed": seed,
        "over": {axis.knob: list(axis.values) for axis in axes},
        "fixed": dict(fixed),
        "axes": [{"metric": axis, "better": METRICS[axis].better} for axis in weighed],
        "rows": [_row_document(row, number in best) for number, row in enumerate(rows)],
    }


def _row_document(row: Row, on_front: bool) -> dict[str, object]:
    verdict, result = row.verdict, row.result
    return {
        "build": row.build,
        "verdict": row.word,
        "refused": row.refused or None,
        "front": on_front,
        "goals": [] if verdict is None else list(verdict.goals),
        "metrics": {} if verdict is None else verdict.metrics,
        "bound_by": None if verdict is None else verdict.bound_by,
        "reasons": [] if verdict is None else list(verdict.reasons),
        "kernel_path": {} if result is None else result.kernel_path,
        "memory_bytes": None if result is None else result.memory.allocated_bytes,
    }
