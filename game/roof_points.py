"""Counted work and measured time, joined into the figures of the roofline and the price."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Literal, Protocol

from engine.machine import Ceilings
from engine.trial import RunSample, TrialResult, Work
from game.measured import BuildName, Rates
from game.widgets.ink import Ink
from game.widgets.roof import Point, Roof

Phase = Literal["prefill", "decode"]
Limit = Literal["bandwidth", "compute", "launch overhead"]
MARK: dict[tuple[BuildName, Phase], tuple[str, Ink]] = {
    ("candidate", "prefill"): ("P", "bronze"),
    ("candidate", "decode"): ("D", "wall"),
    ("reference", "prefill"): ("p", "bronze"),
    ("reference", "decode"): ("d", "wall"),
}
"""Capitals are the player's build, small letters the reference: legible without colour."""


class TwoPhases(Protocol):
    """A run's counted work: its whole prefill, and one mean decode step."""

    @property
    def prefill(self) -> Work: ...

    @property
    def decode(self) -> Work: ...


@dataclass(frozen=True)
class Floors:
    """Least seconds each limit allows for a piece of work: bytes / (bytes/s), and so on."""

    bandwidth: float
    compute: float
    launch: float

    @property
    def seconds(self) -> float:
        return max(self.bandwidth, self.compute, self.launch)

    @property
    def limit(self) -> Limit:
        if self.seconds == self.bandwidth:
            return "bandwidth"
        return "compute" if self.seconds == self.compute else "launch overhead"


def floors(work: Work, ceilings: Ceilings, precision: str) -> Floors:
    return Floors(
        bandwidth=work.bytes_moved / ceilings.read_bytes_per_second,
        compute=work.flops / peak(ceilings, precision),
        launch=work.dispatches * ceilings.dispatch_seconds,
    )


def peak(ceilings: Ceilings, precision: str) -> float:
    """Operations/s at a precision; the best known where this one was not measured."""
    rates = ceilings.flops_per_second
    return rates.get(precision) or max(rates.values())


def roof(ceilings: Ceilings, precision: str) -> Roof:
    return Roof(ceilings.read_bytes_per_second, peak(ceilings, precision))


def point(build: BuildName, phase: Phase, work: Work, seconds: float) -> Point | None:
    """Where a phase stands that did `work` in `seconds`; None where either is unknown."""
    if seconds <= 0 or work.bytes_moved <= 0 or work.flops <= 0:
        return None
    mark, ink = MARK[(build, phase)]
    return Point(mark, work.flops / work.bytes_moved, work.flops / seconds, ink)


def points_at_floor(work: TwoPhases, ceilings: Ceilings, precision: str) -> list[Point]:
    """Both phases of a build as fast as this machine could run them: what a formula can say."""
    found = [
        point("candidate", "prefill", work.prefill, floors_of(work.prefill, ceilings, precision)),
        point("candidate", "decode", work.decode, floors_of(work.decode, ceilings, precision)),
    ]
    return [one for one in found if one is not None]


def floors_of(work: Work, ceilings: Ceilings, precision: str) -> float:
    return floors(work, ceilings, precision).seconds


def points_so_far(
    build: BuildName, work: TwoPhases, rates: Rates, batch: int, prompt: int
) -> list[Point]:
    """Both phases at the rates measured so far (seconds a token, see `measured.Rates`)."""
    found = []
    if rates.prefill is not None:
        found.append(point(build, "prefill", work.prefill, rates.prefill * batch * prompt))
    if rates.decode is not None:
        found.append(point(build, "decode", work.decode, rates.decode * batch))
    return [one for one in found if one is not None]


def points_measured(result: TrialResult) -> list[Point]:
    """Every phase of both builds, by the median of their timed runs; the player's drawn first."""
    runs: dict[BuildName, list[RunSample]] = {
        "candidate": [pair.candidate for pair in result.pairs] or list(result.singles),
        "reference": [pair.reference for pair in result.pairs],
    }
    works = {"candidate": result.candidate_work, "reference": result.reference_work}
    found: list[Point | None] = []
    for build, samples in runs.items():
        if not samples:
            continue
        prefill = median(sample.prefill_seconds for sample in samples)
        step = median(s.decode_seconds / max(len(s.step_seconds), 1) for s in samples)
        found.append(point(build, "prefill", works[build].prefill, prefill))
        found.append(point(build, "decode", works[build].decode, step))
    return [one for one in found if one is not None]


def shares_of_ceilings(
    work: Work, seconds: float, ceilings: Ceilings, precision: str
) -> tuple[float, float]:
    """(share of the bandwidth, share of the arithmetic) that a phase reached."""
    if seconds <= 0:
        return 0.0, 0.0
    least = floors(work, ceilings, precision)
    return least.bandwidth / seconds, least.compute / seconds
