"""After the clock has stopped: were the answers the model's own, and was any run beyond physics?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.config import EngineConfig
from engine.machine import Ceilings
from engine.measure.faults import beaten_floor, too_fast, wrong_output
from engine.measure.harness import Harness
from engine.measure.output_check import WrongToken, chosen_request
from engine.measure.reporter import Reporter, Side
from engine.measure.seen import Seen
from engine.measure.timing import Answered
from engine.model.llama import Llama
from engine.trial import PhaseWork

CheckOutput = Callable[[Llama, Answered, int, str, int], WrongToken | None]
"""(float32 model, a timed run, which of its requests, the run's precision, its cache's bits)."""

Second = Callable[[Ceilings, PhaseWork], Ceilings]
"""The ceilings after a second look, with what the run that beat them had to do."""


def check_outputs(
    seed: int,
    builds: Sequence[Harness],
    judge: Llama,
    check: CheckOutput,
    seen: Seen,
    desk: Reporter,
) -> None:
    """Score one request of every timed unit again; the first that cannot be explained is a fault.

    `judge` is the float32 model; chance, by the trial's `seed`, chooses the requests.
    """
    runs = [(build, number, run) for build in builds for number, run in enumerate(build.timed)]
    for done, (build, number, run) in enumerate(runs):
        desk.progress("checking", done, len(runs))
        request = chosen_request(seed, number, len(run.prompts))
        config = build.config
        wrong = check(judge, run, request, config.run.precision, config.cache.bits)
        if wrong is not None:
            seen.faults.append(wrong_output(build.side, number, request, made_in(config), wrong))
            return


def made_in(config: EngineConfig) -> str:
    """A run's precision, and its cache's where that is another."""
    bits = config.cache.bits
    return config.run.precision + (f" with {bits}-bit KV" if bits else "")


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
