"""The first thing done on a machine: which threads and wait policy, which ceilings, how much noise.

Every cell of {1, physical, logical} threads x {active, passive} waiting runs in a fresh process.
Spinning threads are fastest on a quiet machine and collapse on a busy one, so the choice is
measured, stored with the machine's fingerprint, and measured again when trials keep being noisy.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import NamedTuple

import msgspec

from engine.capabilities import Capabilities
from engine.clean import clean
from engine.machine import (
    PROFILE_VERSION,
    MachineProfile,
    ThreadTiming,
    WaitPolicy,
    save_profile,
    worker_environment,
)
from engine.measure.noise import pair_noise
from engine.measure.thread_probe import ProbeReport, ProbeTask
from engine.messages import Event, Progress
from engine.model.config import ModelConfig
from engine.serve.failures import Aborted
from engine.serve.lifeline import PARENT_VARIABLE

CELL_DEADLINE, FINAL_DEADLINE = 25.0, 60.0
CELLS_BUDGET = 24.0
"""Seconds after which no further cell is started: the whole stays within 40 on two cores."""
PREFER_WITHIN = 0.03
PROBE_BYTES = 192 << 20
NOISE_PAIRS = 12

DEFAULT_SHAPES = ((960, 576), (576, 576), (3072, 576), (576, 1536))
DEFAULT_LAYERS = 30
"""The default model's layer: q, k and v as one matrix, o, gate and up as one, down."""


class CalibrationError(RuntimeError):
    """No cell could be measured; says what the last one answered."""


class Cell(NamedTuple):
    threads: int
    wait_policy: WaitPolicy


Probe = Callable[[ProbeTask, WaitPolicy, float, Callable[[], bool]], ProbeReport]
"""(task, wait policy, deadline in seconds, aborted) -> report."""


def calibrate(
    capabilities: Capabilities,
    emit: Callable[[Event], None],
    aborted: Callable[[], bool],
    *,
    job: int = 0,
    model: ModelConfig | None = None,
    probe: Probe | None = None,
    seconds: Callable[[], float] = time.monotonic,
) -> MachineProfile:
    """Measure this machine and save its profile. About 25 s on two quiet cores.

    `model` gives the shapes of the matrices to time; the default model's where it is None.

    Raises:
        Aborted: the player stopped it.
        CalibrationError: no cell could be measured.
    """
    run = probe or run_probe
    layers, shapes = probe_shapes(model)
    wanted = cells(capabilities.physical_cores, capabilities.logical_cores)
    total = len(wanted) + 1
    timings: list[ThreadTiming] = []
    failure = ""
    start = seconds()
    for done, cell in enumerate(wanted):
        if timings and seconds() - start > CELLS_BUDGET:
            break
        detail = f"{cell.threads} / {cell.wait_policy}"
        emit(Progress(job, "calibrating", done, total, detail=detail))
        task = ProbeTask(cell.threads, layers, shapes)
        try:
            report = run(task, cell.wait_policy, CELL_DEADLINE, aborted)
        except CalibrationError as error:
            failure = str(error)
            continue
        timings.append(ThreadTiming(cell.threads, cell.wait_policy, median(report.steps)))
    if not timings:
        raise CalibrationError(failure)
    best = choose(timings)
    detail = f"{best.threads} / {best.wait_policy}"
    emit(Progress(job, "calibrating", total - 1, total, detail=detail))
    final = ProbeTask(
        best.threads,
        layers,
        shapes,
        step_seconds=0.3,
        precisions=tuple(name for name, reason in capabilities.precisions.items() if not reason),
        ceiling_threads=(capabilities.physical_cores,),
        pairs=NOISE_PAIRS,
    )
    report = run(final, best.wait_policy, FINAL_DEADLINE, aborted)
    if report.ceilings is None:
        raise CalibrationError("the probe gave no ceilings")
    profile = MachineProfile(
        version=PROFILE_VERSION,
        fingerprint=capabilities.fingerprint,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        threads=best.threads,
        wait_policy=best.wait_policy,
        ceilings=report.ceilings,
        noise=pair_noise(report.runs),
        calibration=tuple(timings),
    )
    save_profile(profile)
    emit(Progress(job, "calibrating", total, total))
    return profile


def cells(physical: int, logical: int) -> tuple[Cell, ...]:
    """Every cell once, the likeliest winners first, so that a short budget still has them."""
    policies: tuple[WaitPolicy, ...] = ("passive", "active")
    counts = dict.fromkeys((physical, 1, logical))
    return tuple(Cell(threads, policy) for threads in counts for policy in policies)


def choose(timings: Sequence[ThreadTiming]) -> ThreadTiming:
    """The fastest cell; within 3 % of it the fewest threads, then passive waiting.

    Raises:
        ValueError: no timings.
    """
    if not timings:
        raise ValueError("there is no cell to choose from")
    limit = min(cell.seconds for cell in timings) * (1 + PREFER_WITHIN)
    near = [cell for cell in timings if cell.seconds <= limit]
    return min(near, key=lambda cell: (cell.threads, cell.wait_policy != "passive", cell.seconds))


def probe_shapes(model: ModelConfig | None) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Layers and matrices to time: enough of the model's own to pass the caches, no more."""
    layers, shapes = DEFAULT_LAYERS, DEFAULT_SHAPES
    if model is not None:
        layers = model.layers
        shapes = (
            (model.query_width + 2 * model.kv_width, model.hidden),
            (model.hidden, model.query_width),
            (2 * model.intermediate, model.hidden),
            (model.hidden, model.intermediate),
        )
    layer_bytes = 4 * sum(outputs * inputs for outputs, inputs in shapes)
    return max(min(layers, -(-PROBE_BYTES // layer_bytes)), 1), shapes


def run_probe(
    task: ProbeTask, wait_policy: WaitPolicy, deadline: float, aborted: Callable[[], bool]
) -> ProbeReport:
    """Run one probe in a process of its own, which ends with this one at the latest.

    Raises:
        Aborted: the player stopped it; the probe is ended first.
        CalibrationError: it failed, said nothing readable, or passed its deadline.
    """
    command = [
        sys.executable,
        "-m",
        "engine.measure.thread_probe",
        msgspec.json.encode(task).decode(),
    ]
    environment = {
        **os.environ,
        **worker_environment(wait_policy),
        PARENT_VARIABLE: str(os.getpid()),
    }
    for fixed in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        environment.pop(fixed, None)
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=complaints,
            env=environment,
        )
        try:
            _wait(process, deadline, aborted)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        answer.seek(0)
        complaints.seek(0)
        try:
            return msgspec.json.decode(answer.read(), type=ProbeReport)
        except msgspec.DecodeError:
            words = clean(complaints.read().decode(errors="replace")[-400:], one_line=True)
            raise CalibrationError(
                f"the probe of {task.threads} threads, {wait_policy}, gave no report "
                f"(exit {process.returncode}): {words}"
            ) from None


def _wait(process: subprocess.Popen[bytes], deadline: float, aborted: Callable[[], bool]) -> None:
    end = time.monotonic() + deadline
    while process.poll() is None:
        if aborted():
            raise Aborted
        if time.monotonic() > end:
            raise CalibrationError(f"the probe did not answer within {deadline:.0f} s")
        time.sleep(0.05)
