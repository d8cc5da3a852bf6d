"""Calibration on probes that answer what they are told to, and one real probe."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from known_machines import make_capabilities

import engine.measure.calibrate as calibrate_module
from engine.machine import Ceilings, ThreadTiming, WaitPolicy, load_profile
from engine.measure.calibrate import (
    CalibrationError,
    Cell,
    calibrate,
    cells,
    choose,
    probe_shapes,
    run_probe,
)
from engine.measure.thread_probe import ProbeReport, ProbeTask, probe, probe_ceilings
from engine.model.config import ModelConfig
from engine.serve.failures import Aborted

CEILINGS = Ceilings(20e9, {"float32": 1e11, "bfloat16": 2e11}, 1e-6)
CAPABILITIES = make_capabilities(
    physical_cores=4,
    logical_cores=8,
    precisions={"float32": "", "bfloat16": "", "float16": "not here"},
)
SECONDS = {
    Cell(4, "passive"): 0.020,
    Cell(4, "active"): 0.010,
    Cell(1, "passive"): 0.030,
    Cell(1, "active"): 0.030,
    Cell(8, "passive"): 0.050,
    Cell(8, "active"): 0.900,
}


def never() -> bool:
    return False


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path))


class FakeProbe:
    """Answers by cell; the A/A runs alternate 1.0 and 1.02 so that the noise is known."""

    def __init__(self, failing: tuple[Cell, ...] = ()) -> None:
        self.failing = failing
        self.asked: list[tuple[ProbeTask, WaitPolicy]] = []

    def __call__(
        self, task: ProbeTask, policy: WaitPolicy, deadline: float, aborted: Callable[[], bool]
    ) -> ProbeReport:
        if aborted():
            raise Aborted
        self.asked.append((task, policy))
        cell = Cell(task.threads, policy)
        if cell in self.failing:
            raise CalibrationError(f"no report from {cell.threads}")
        seconds = SECONDS[cell]
        steps = (seconds * 0.9, seconds, seconds * 5)
        if not task.precisions:
            return ProbeReport(steps)
        return ProbeReport(steps, (1.0, 1.02) * task.pairs, CEILINGS)


def test_the_fastest_cell_is_chosen_measured_and_saved() -> None:
    fake, heard = FakeProbe(), []
    profile = calibrate(CAPABILITIES, heard.append, never, job=9, probe=fake)
    assert (profile.threads, profile.wait_policy) == (4, "active")
    assert profile.ceilings == CEILINGS
    assert {Cell(t.threads, t.wait_policy): t.seconds for t in profile.calibration} == SECONDS
    assert profile.noise == pytest.approx(0.0203, abs=0.001)  # +ln 1.02, -ln 1.02, ...
    final, policy = fake.asked[-1]
    assert (final.threads, policy) == (4, "active")
    assert final.precisions == ("float32", "bfloat16") and final.ceiling_threads == (4,)
    assert load_profile(CAPABILITIES.fingerprint) == profile
    assert [event.done for event in heard] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert {(e.job, e.phase, e.total) for e in heard} == {(9, "calibrating", 7)}


def test_a_cell_that_fails_is_passed_over() -> None:
    profile = calibrate(CAPABILITIES, lambda _: None, never, probe=FakeProbe((Cell(4, "active"),)))
    assert (profile.threads, profile.wait_policy) == (4, "passive")
    assert len(profile.calibration) == 5


def test_a_machine_where_no_cell_answers_says_what_the_last_one_said() -> None:
    with pytest.raises(CalibrationError, match="no report from"):
        calibrate(CAPABILITIES, lambda _: None, never, probe=FakeProbe(tuple(SECONDS)))
    assert load_profile(CAPABILITIES.fingerprint) is None


def test_a_stopped_calibration_saves_nothing() -> None:
    fake = FakeProbe()
    with pytest.raises(Aborted):
        calibrate(CAPABILITIES, lambda _: None, lambda: len(fake.asked) >= 2, probe=fake)
    assert len(fake.asked) == 2
    assert load_profile(CAPABILITIES.fingerprint) is None


def test_a_slow_machine_starts_no_further_cell_after_its_budget() -> None:
    clock = iter(range(0, 1000, 15))
    profile = calibrate(
        CAPABILITIES, lambda _: None, never, probe=FakeProbe(), seconds=lambda: next(clock)
    )
    assert len(profile.calibration) == 2


def test_every_cell_once() -> None:
    assert set(cells(4, 8)) == set(SECONDS)
    assert len(cells(1, 1)) == 2 and len(cells(2, 2)) == 4


def timing(threads: int, policy: WaitPolicy, seconds: float) -> ThreadTiming:
    return ThreadTiming(threads, policy, seconds)


@pytest.mark.parametrize(
    ("timings", "chosen"),
    [
        ([(2, "active", 1.00), (1, "passive", 1.02)], (1, "passive")),
        ([(2, "active", 1.00), (1, "passive", 1.04)], (2, "active")),
        ([(2, "active", 1.00), (2, "passive", 1.03)], (2, "passive")),
        ([(1, "active", 1.00), (2, "passive", 1.00)], (1, "active")),
    ],
)
def test_fewer_threads_and_passive_waiting_are_preferred_within_three_percent(
    timings: list[Any], chosen: tuple[int, str]
) -> None:
    best = choose([timing(*one) for one in timings])
    assert (best.threads, best.wait_policy) == chosen


def test_choosing_from_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no cell"):
        choose([])


def test_the_models_own_shapes_are_timed_and_no_more_than_needed(
    tiny_config: Callable[..., ModelConfig],
) -> None:
    layers, shapes = probe_shapes(tiny_config(layers=3))
    assert layers == 3
    assert shapes == ((128, 64), (64, 64), (256, 64), (64, 128))
    wide = tiny_config(layers=80, hidden=4096, heads=32, head_dim=128, intermediate=14_336)
    assert probe_shapes(wide)[0] == 1


TINY = ProbeTask(
    threads=1,
    layers=1,
    shapes=((32, 32), (32, 32)),
    step_seconds=0.0,
    precisions=("float32",),
    ceiling_seconds=0.0,
    pairs=2,
)


def test_ceilings_are_the_best_over_thread_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*_: Any) -> Ceilings:
        threads = torch.get_num_threads()
        return Ceilings(10.0 * threads, {"float32": 8.0 / threads}, 1e-6)

    monkeypatch.setattr("engine.measure.thread_probe.measure_ceilings", measured)
    task = ProbeTask(1, 1, ((8, 8),), precisions=("float32",), ceiling_threads=(2,))
    assert probe_ceilings(task, lambda: 0) == Ceilings(20.0, {"float32": 8.0}, 1e-6)


def test_a_probe_reports_steps_runs_and_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.measure.ceilings.read_buffer_bytes", lambda: 1 << 20)
    monkeypatch.setattr("engine.measure.thread_probe.RUN_SECONDS", 0.001)
    report = probe(TINY)
    assert len(report.steps) >= 8 and len(report.runs) == 4
    assert all(seconds > 0 for seconds in (*report.steps, *report.runs))
    assert report.ceilings is not None and set(report.ceilings.flops_per_second) == {"float32"}


@pytest.mark.process
def test_a_real_probe_answers_from_its_own_process() -> None:
    task = ProbeTask(threads=1, layers=1, shapes=((32, 32),), step_seconds=0.0)
    report = run_probe(task, "passive", 60.0, never)
    assert len(report.steps) >= 8 and report.ceilings is None


@pytest.mark.process
def test_a_probe_that_hangs_is_ended_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch, "import time; time.sleep(60)")
    start = time.monotonic()
    with pytest.raises(CalibrationError, match="did not answer"):
        run_probe(TINY, "passive", 0.3, never)
    assert time.monotonic() - start < 30


@pytest.mark.process
def test_a_probe_is_ended_when_the_player_stops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    _stand_in(
        monkeypatch,
        f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)",
    )
    with pytest.raises(Aborted):
        run_probe(TINY, "passive", 60.0, lambda: mark.exists() and mark.read_text() != "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


@pytest.mark.process
def test_a_probe_that_breaks_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch, "raise SystemExit('no such \\x1b[31mkernel')")
    with pytest.raises(CalibrationError, match=r"exit 1\): .*no such kernel"):
        run_probe(TINY, "active", 60.0, never)


def _stand_in(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Another program in the probe's place: an interpreter that ignores `-m engine...`."""
    real = calibrate_module.subprocess.Popen

    def start(command: list[str], **options: Any) -> Any:
        return real([sys.executable, "-c", code], **options)

    monkeypatch.setattr(calibrate_module.subprocess, "Popen", start)
