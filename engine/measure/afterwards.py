"""After the clock has stopped: were the answers the model's own, and was any run beyond physics?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count

from engine.config import EngineConfig
from engine.machine import Ceilings
from engine.measure.drawn import places, weigh
from engine.measure.faults import beaten_floor, disagreement, not_drawn, too_fast, wrong_output
from engine.measure.harness import Harness
from engine.measure.output_check import (
    JUDGED_TOKENS,
    LEAST_AGREEMENT,
    WrongToken,
    chosen_request,
    restless,
    token_distances,
)
from engine.measure.reporter import Reporter, Side
from engine.measure.seen import Seen
from engine.measure.timing import Answered
from engine.model.llama import Llama
from engine.recipe import Recipe, recipe_of
from engine.trial import Fault, PhaseWork

FALSE_ALARM = 1e-6
"""A sampled build is disbelieved where fair draws lie as far from evenness less often than this."""

CheckOutput = Callable[[Llama, Answered, int, str, int, Recipe], WrongToken | None]
"""(float32 model, a timed run, which of its requests, the run's precision, its cache's bits, the
recipe of its weights)."""

Judge = Callable[[EngineConfig], Llama]
"""The float32 model that a build's answers are held to."""

Second = Callable[[Ceilings, PhaseWork], Ceilings]
"""The ceilings after a second look, with what the run that beat them had to do."""


def check_outputs(
    seed: int,
    builds: Sequence[Harness],
    judge: Judge,
    check: CheckOutput,
    seen: Seen,
    desk: Reporter,
) -> None:
    """Score one request of every timed unit again; the first that cannot be explained is a fault.

    One judge is alive at a time. Chance, by the trial's `seed`, chooses the requests.
    """
    counted = count()
    runs = sum(len(build.timed) for build in builds)

    def tell() -> None:
        desk.progress("checking", next(counted), runs)

    for build in builds:
        if build.timed:
            fault = _check_build(seed, build, judge(build.config), check, tell)
            if fault is not None:
                seen.faults.append(fault)
                return


def _check_build(
    seed: int, build: Harness, judge: Llama, check: CheckOutput, tell: Callable[[], None]
) -> Fault | None:
    config = build.config
    recipe = recipe_of(config.weights, judge.config)
    chosen = [
        (run, chosen_request(seed, number, len(run.prompts)))
        for number, run in enumerate(build.timed)
    ]
    if config.sampling.temperature:
        return _check_draws(build, chosen, judge, tell)
    if restless(config.run.precision, recipe):
        return _check_agreement(build, chosen, judge, tell)
    for number, (run, request) in enumerate(chosen):
        tell()
        wrong = check(judge, run, request, config.run.precision, config.cache.bits, recipe)
        if wrong is not None:
            return wrong_output(build.side, number, request, made_in(config), wrong)
    return None


def _check_agreement(
    build: Harness,
    chosen: Sequence[tuple[Answered, int]],
    judge: Llama,
    tell: Callable[[], None],
) -> Fault | None:
    best = tokens = 0
    for run, request in chosen:
        tell()
        distances, _ = token_distances(judge, run.prompts[request], run.outputs[request])
        best += sum(distance == 0 for distance in distances)
        tokens += len(distances)
    if tokens < JUDGED_TOKENS or best >= LEAST_AGREEMENT * tokens:
        return None
    return disagreement(build.side, made_in(build.config), best, tokens)


def _check_draws(
    build: Harness,
    chosen: Sequence[tuple[Answered, int]],
    judge: Llama,
    tell: Callable[[], None],
) -> Fault | None:
    """Sampled tokens need not be the best of their positions: they are held to their chances."""
    points: list[float] = []
    for run, request in chosen:
        tell()
        prompt, output = run.prompts[request], run.outputs[request]
        points += places(judge, prompt, output, build.config.sampling.temperature)
    found = weigh(points)
    if found.chance >= FALSE_ALARM:
        return None
    return not_drawn(build.side, made_in(build.config), found)


def made_in(config: EngineConfig) -> str:
    """A run's precision, and its weights' and its cache's where those are others."""
    bits = {"weights": config.weights.bits, "KV": config.cache.bits}
    narrow = " and ".join(f"{width}-bit {what}" for what, width in bits.items() if width)
    return config.run.precision + (f" with {narrow}" if narrow else "")


def check_floor(
    seen: Seen, work: Mapping[Side, PhaseWork], ceilings: Ceilings, second: Second
) -> Ceilings:
    """A run beyond its ceiling has the ceiling measured once more before it is disbelieved.

    Returns the ceilings that then hold.
    """
    beaten = beaten_floor(seen.pairs, seen.singles, work, ceilings, seen.load_pairs)
    if beaten is None:
        return ceilings
    ceilings = second(ceilings, work[beaten.side])
    beaten = beaten_floor(seen.pairs, seen.singles, work, ceilings, seen.load_pairs)
    if beaten is not None:
        seen.faults.append(too_fast(beaten))
    return ceilings
