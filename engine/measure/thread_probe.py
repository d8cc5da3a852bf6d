"""One cell of the calibration, in a process of its own: `python -m engine.measure.thread_probe`.

OpenMP reads its wait policy once, when it is loaded, and keeps its threads for good: two policies
cannot be compared in one process. The parent sets OMP_WAIT_POLICY, passes a ProbeTask as JSON on
the command line, and reads a ProbeReport as JSON from stdout.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable
from statistics import fmean

import msgspec
import torch

from engine.machine import Ceilings
from engine.measure.ceilings import highest, measure_ceilings
from engine.measure.timing import Clock, collector_off, system_clock
from engine.serve.lifeline import die_with_parent
from kernels.linear.dispatch import resolve
from kernels.norm.rms_norm import RMSNorm

RUN_SECONDS = 0.1
"""Length of one A/A run: two timed units."""


class ProbeTask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`shapes` are the (N, K) of one layer's matrices. Steps are timed for `step_seconds`; with
    `precisions` the ceilings are measured too, and then `pairs` A/A pairs. A ceiling belongs to
    the machine and not to a thread count: it is the best over `threads` and `ceiling_threads`."""

    threads: int
    layers: int
    shapes: tuple[tuple[int, int], ...]
    step_seconds: float = 1.0
    precisions: tuple[str, ...] = ()
    ceiling_threads: tuple[int, ...] = ()
    ceiling_seconds: float = 5.0
    pairs: int = 0


class ProbeReport(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds of each step; of each A/A run, in the order A B B A; the ceilings if asked."""

    steps: tuple[float, ...]
    runs: tuple[float, ...] = ()
    ceilings: Ceilings | None = None


def probe(task: ProbeTask, clock: Clock = system_clock) -> ProbeReport:
    """Time a decode-like loop: per layer a norm and the layer's matrices, one row each, float32."""
    torch.set_num_threads(task.threads)
    step = decode_like_step(task.layers, task.shapes)
    with torch.inference_mode():
        for _ in range(3):
            step()
        with collector_off():
            steps = timed_steps(step, task.step_seconds, clock)
        ceilings = probe_ceilings(task, clock) if task.precisions else None
        torch.set_num_threads(task.threads)
        repeats = max(round(RUN_SECONDS / fmean(steps)), 1)
        with collector_off():
            runs = tuple(timed_run(step, repeats, clock) for _ in range(2 * task.pairs))
    return ProbeReport(steps, runs, ceilings)


def probe_ceilings(task: ProbeTask, clock: Clock) -> Ceilings:
    """The best over every thread count, the time shared between them."""
    counts = sorted({task.threads, *task.ceiling_threads})
    found: list[Ceilings] = []
    for threads in counts:
        torch.set_num_threads(threads)
        found.append(measure_ceilings(task.precisions, task.ceiling_seconds / len(counts), clock))
    return functools.reduce(highest, found)


def decode_like_step(layers: int, shapes: tuple[tuple[int, int], ...]) -> Callable[[], object]:
    """A pass over `layers` sets of packed matrices; small calls between them, as a layer has."""
    inputs = {width: torch.full((1, width), 0.5) for _, width in shapes}
    norms = {width: RMSNorm(torch.ones(width), 1e-5) for width in inputs}
    matrices = [resolve(torch.full(shape, 0.01)) for _ in range(layers) for shape in shapes]
    widths = list(itertools.islice(itertools.cycle(k for _, k in shapes), len(matrices)))

    def step() -> None:
        for matrix, width in zip(matrices, widths, strict=True):
            matrix(norms[width](inputs[width]))

    return step


def timed_steps(step: Callable[[], object], seconds: float, clock: Clock) -> tuple[float, ...]:
    """At least 8 steps, until `seconds` are spent."""
    durations: list[float] = []
    while len(durations) < 8 or sum(durations) < seconds:
        began = clock()
        step()
        durations.append(max((clock() - began) / 1e9, 1e-9))
    return tuple(durations)


def timed_run(step: Callable[[], object], repeats: int, clock: Clock) -> float:
    began = clock()
    for _ in range(repeats):
        step()
    return max((clock() - began) / 1e9, 1e-9)


def main() -> None:
    die_with_parent()
    task = msgspec.json.decode(sys.argv[1], type=ProbeTask)
    print(msgspec.json.encode(probe(task)).decode(), flush=True)


if __name__ == "__main__":
    main()
