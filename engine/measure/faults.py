"""What the samples of a trial say against it: runs beyond physics, and too much noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from engine.draft_report import Drawn
from engine.load_metrics import load_faster_than_physics
from engine.machine import Ceilings
from engine.measure.output_check import LEAST_AGREEMENT, WrongToken
from engine.measure.reporter import Side
from engine.measure.timing import WarmUp
from engine.metrics import Phase, faster_than_physics, noise_variation
from engine.trial import Fault, LoadPair, LoadSample, Pair, PhaseWork, RunSample

NOISE_LIMIT = 0.25


class Beaten(NamedTuple):
    """A run that was faster than its floor, and what share of the ceiling it seemed to reach."""

    side: Side
    phase: Phase
    share: float


def beaten_floor(
    pairs: Sequence[Pair],
    singles: Sequence[RunSample],
    work: Mapping[Side, PhaseWork],
    ceilings: Ceilings,
    load_pairs: Sequence[LoadPair] = (),
) -> Beaten | None:
    """The first run or load of either build that beat its physical floor.

    A load is held to what was counted of it, not to `work`.
    """
    for one in load_pairs:
        served: tuple[tuple[Side, LoadSample], ...] = (
            ("reference", one.reference),
            ("candidate", one.candidate),
        )
        for side, load in served:
            found = load_faster_than_physics(load, ceilings)
            if found is not None:
                return Beaten(side, *found)
    runs: list[tuple[Side, RunSample]] = [("candidate", run) for run in singles]
    for pair in pairs:
        runs += [("reference", pair.reference), ("candidate", pair.candidate)]
    for side, run in runs:
        found = faster_than_physics(run, work[side], ceilings)
        if found is not None:
            return Beaten(side, *found)
    return None


def too_fast(beaten: Beaten) -> Fault:
    return Fault("too_fast", {"phase": beaten.phase, "share": f"{beaten.share * 100:.0f}"})


def noise_fault(
    pairs: Sequence[Pair],
    singles: Sequence[RunSample],
    warmed: Iterable[WarmUp],
    load_pairs: Sequence[LoadPair] = (),
) -> Fault | None:
    """Over 25 % of spread nothing can be judged; named for the warm-up where that never settled."""
    spread = noise_variation(pairs, singles, load_pairs)
    if spread <= NOISE_LIMIT:
        return None
    unsettled = [one.runs for one in warmed if one.runs and not one.settled]
    if unsettled:
        return Fault("unstable", {"runs": str(max(unsettled)), "cv": f"{spread * 100:.0f}"})
    return Fault("noise", {"cv": f"{spread * 100:.0f}"})


def disagreement(side: Side, made_in: str, best: int, tokens: int) -> Fault:
    """Too few of a restless build's tokens were the best of their positions."""
    what = (
        f"{side}: {best} of {tokens} tokens have the best score of their position, "
        f"{LEAST_AGREEMENT:.0%} expected in {made_in}"
    )
    return Fault("wrong_output", {"what": what})


def not_drawn(side: Side, made_in: str, found: Drawn) -> Fault:
    """A sampled build's tokens do not follow the model's own distribution."""
    what = (
        f"{side}: {found.tokens} sampled tokens are not spread as the model's probabilities say: "
        f"Kolmogorov-Smirnov distance {found.distance:.2f}, of a chance of {found.chance:.1g} "
        f"in {made_in}"
    )
    return Fault("wrong_output", {"what": what})


def wrong_output(side: Side, run: int, request: int, made_in: str, wrong: WrongToken) -> Fault:
    """`made_in` names the run's precision, and the cache's where that is another. Runs, requests
    and tokens are counted from 1, as a reader counts."""
    what = (
        f"{side}, run {run + 1}, request {request + 1}, token {wrong.place + 1}: "
        f"{wrong.distance:.2f} standard deviations below the best score, "
        f"{wrong.allowed:g} allowed in {made_in}"
    )
    return Fault("wrong_output", {"what": what})
