"""Runs one trial from spec to result: load, warm up, time, check, weigh, compare. Judges nothing.

The order is fixed: everything timed comes first; whatever would disturb the clock (scoring outputs,
quality) comes after the last timed run. What goes wrong on the way becomes a fault of the result,
and a memory budget that breaks becomes its flood; only an abort, or a build that cannot be, ends a
trial without one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import torch

from engine.capabilities import Capabilities
from engine.clean import clean
from engine.config import EngineConfig
from engine.domains import Value
from engine.load_metrics import mean_work
from engine.machine import Ceilings, MachineProfile
from engine.measure import ceilings as ceilings_module
from engine.measure import speculation
from engine.measure.account import account
from engine.measure.afterwards import CheckOutput, check_floor, check_outputs
from engine.measure.calibrate import probe_shapes
from engine.measure.faults import noise_fault
from engine.measure.harness import Flooded, Harness, OnBench
from engine.measure.load_harness import LoadHarness
from engine.measure.output_check import check_output
from engine.measure.pairs import time_load_pairs, time_run_pairs
from engine.measure.prepared import MakeEngine, Prepared, check_one_load, prepare
from engine.measure.quality import QualityBook
from engine.measure.quantising import wanted
from engine.measure.reporter import Reporter
from engine.measure.run_harness import RunHarness
from engine.measure.seen import Seen
from engine.measure.served import CountFault
from engine.measure.shelf import Shelf
from engine.measure.singles import time_singles
from engine.measure.timing import Clock, OutputFault, system_clock
from engine.measure.workload import Workload, corpus_text
from engine.messages import Event
from engine.metrics import Evidence, MetricError
from engine.model.llama import Llama
from engine.quantised import Notice, Quantised
from engine.resolve import Resolved, resolve
from engine.run.engine import Engine
from engine.serve.failures import InputError
from engine.trial import Environment, Fault, Flood, MemoryAccount, PhaseWork, TrialResult, TrialSpec
from engine.work import load_work

_MEMORY_KINDS = frozenset({"hold", "serve"})
"""Kinds of trial whose memory is told while they run."""


@dataclass(frozen=True)
class Instruments:
    """What a trial is measured with; tests bring their own."""

    clock: Clock = system_clock
    make_engine: MakeEngine = lambda model, config, eos_ids, draft: Engine(
        model, config, eos_ids=eos_ids, draft=draft
    )
    check_output: CheckOutput = check_output
    measure_again: Callable[[Ceilings, PhaseWork, Sequence[tuple[int, int]]], Ceilings] = (
        ceilings_module.measure_again
    )


class TrialRunner:
    """Runs trials on one loaded model and one measured machine.

    `wait_policy` is the one this process runs under. `remember` is told when a second look raises
    the machine's ceilings, so that the profile can be saved with them.
    """

    def __init__(
        self,
        shelf: Shelf,
        machine: MachineProfile,
        capabilities: Capabilities,
        emit: Callable[[Event], None],
        aborted: Callable[[], bool],
        *,
        wait_policy: str = "",
        book: QualityBook | None = None,
        remember: Callable[[Ceilings], None] | None = None,
        instruments: Instruments | None = None,
    ) -> None:
        self._shelf = shelf
        self._machine = machine
        self._capabilities = capabilities
        self._emit = emit
        self._aborted = aborted
        self._wait_policy = wait_policy or machine.wait_policy
        self._book = QualityBook() if book is None else book
        self._remember = remember
        self._tools = Instruments() if instruments is None else instruments
        self._ceilings = machine.ceilings

    def run(self, job: int, spec: TrialSpec) -> TrialResult:
        """One trial.

        Raises:
            KnobError: a build this machine or model cannot take.
            BudgetError: a build whose memory budget not one request fits.
            InputError: the reference breaks its memory budget: nothing can be compared with it.
            Aborted: the player stopped it; nothing is left running.
        """
        started = datetime.now(UTC).isoformat(timespec="seconds")
        desk = Reporter(job, self._emit, self._aborted, self._tools.clock)
        builds = self._make_ready(spec, desk)
        reference, candidate = builds
        stands = self._stands(spec, builds, desk)
        seen = Seen()
        try:
            self._time(spec, builds, stands, seen, desk)
            self._look_closer(spec, stands, seen, desk)
        except Flooded as broke:
            if broke.side == "reference":
                raise InputError(f"the reference cannot be compared with: {broke}") from None
            seen.broke(broke.flood)
        except (OutputFault, CountFault, MetricError, ArithmeticError) as error:
            what = clean(str(error), limit=300, one_line=True)
            seen.faults.append(Fault("wrong_output", {"what": what}))
        self._doubt(spec, builds, stands, seen)
        ours = stands[-1]
        return TrialResult(
            spec=spec,
            config=candidate.config,
            reference_config=reference.config,
            reasons=candidate.resolved.reasons,
            pairs=tuple(seen.pairs),
            singles=tuple(seen.singles),
            warmup_runs=sum(stand.warmed.runs for stand in stands),
            load_seconds=candidate.load_seconds,
            candidate_work=mean_work(pair.candidate for pair in seen.load_pairs)
            or candidate.price.work,
            reference_work=mean_work(pair.reference for pair in seen.load_pairs)
            or reference.price.work,
            memory=_memory(candidate, seen.flood),
            reference_memory=reference.memory,
            quality=seen.quality,
            kernel_path=candidate.engine.kernel_path,
            reference_kernel_path=reference.engine.kernel_path,
            prefix_hit_rate=ours.hit_rate,
            ceilings=self._ceilings,
            noise=self._machine.noise,
            faults=tuple(seen.faults),
            environment=self._environment(candidate.config, started),
            sample_text=seen.text,
            load_pairs=tuple(seen.load_pairs),
            ledger=seen.flood.ledger if seen.flood else ours.ledger,
            flood=seen.flood,
            quantised=_noticed(candidate.quantised, seen.notices),
            ladder=seen.ladder,
            draft=seen.draft,
        )

    def _make_ready(self, spec: TrialSpec, desk: Reporter) -> tuple[Prepared, Prepared]:
        """Reference and candidate: the candidate first, whose loading time is the trial's own."""
        resolved, reference_resolved = self._resolve(spec.build), self._resolve(spec.reference)
        if spec.kind == "serve":
            check_one_load(resolved.config, reference_resolved.config)
        tools = (spec.kind, self._shelf, self._tools.make_engine, self._tools.clock, desk)
        candidate = prepare("candidate", resolved, *tools)
        reference = prepare("reference", reference_resolved, *tools)
        return reference, candidate

    def _resolve(self, build: dict[str, Value]) -> Resolved:
        shelf, threads = self._shelf, self._machine.threads
        return resolve(build, self._capabilities, shelf.config, threads, shelf.drafters)

    def _stands(
        self, spec: TrialSpec, builds: tuple[Prepared, Prepared], desk: Reporter
    ) -> tuple[Harness, ...]:
        """The builds that will run, the candidate last: timeline and hold trials run no other."""
        running = builds[1:] if spec.kind in ("timeline", "hold") else builds
        return tuple(self._stand(spec, build, desk) for build in running)

    def _stand(self, spec: TrialSpec, build: Prepared, desk: Reporter) -> Harness:
        place = OnBench(
            build.side,
            build.config,
            build.engine,
            self._tools.clock,
            desk,
            tell_memory=spec.kind in _MEMORY_KINDS,
        )
        if spec.kind != "serve":
            return RunHarness(place)
        model, forms = self._shelf.config, build.forms
        return LoadHarness(place, lambda sample: load_work(sample, build.config, model, forms))

    def _time(
        self,
        spec: TrialSpec,
        builds: tuple[Prepared, Prepared],
        stands: tuple[Harness, ...],
        seen: Seen,
        desk: Reporter,
    ) -> None:
        """Everything the clock sees."""
        tokenizer, clock = self._shelf.tokenizer, self._tools.clock
        workload = Workload(tokenizer, spec.seed, tokenizer.encode(corpus_text()))
        reference, candidate = builds
        evidence = Evidence(
            pairs=(),
            singles=(),
            work=candidate.price.work,
            ceilings=self._ceilings,
            memory=candidate.memory,
            reference_memory=reference.memory,
            quantised=candidate.quantised,
        )
        match stands:
            case (RunHarness() as ours,):
                time_singles(spec, ours, workload, seen, desk, clock)
            case (RunHarness() as theirs, RunHarness() as ours):
                time_run_pairs(spec, (theirs, ours), workload, evidence, seen, desk, clock)
            case (LoadHarness() as theirs, LoadHarness() as ours):
                time_load_pairs(spec, (theirs, ours), workload, evidence, seen, desk, clock)
            case _:
                raise AssertionError(f"{len(stands)} builds cannot run a {spec.kind} trial")

    def _look_closer(
        self, spec: TrialSpec, stands: tuple[Harness, ...], seen: Seen, desk: Reporter
    ) -> None:
        """What would have disturbed the clock: outputs scored again, a few words, quality."""
        first = tuple(reversed(stands))  # the candidate's faults are told before the reference's
        check_outputs(spec.seed, first, self._judge, self._tools.check_output, seen, desk)
        ours = stands[-1]
        seen.text = clean(ours.answer(self._shelf.tokenizer), limit=400)
        if ours.config.draft.most and not seen.faults:
            plain = stands[0] if len(stands) > 1 else None
            judge = self._judge(ours.config)
            seen.draft = speculation.report(ours, plain, judge, self._shelf.tokenizer)
        if spec.quality and not seen.faults:
            looked = self._book.look(self._shelf, ours.config, spec, desk)
            seen.quality, seen.notices = looked.quality, looked.notices
            seen.ladder = looked.ladder

    def _judge(self, config: EngineConfig) -> Llama:
        return self._shelf.judge(config.run.precision, wanted(config, self._shelf.config))

    def _doubt(
        self,
        spec: TrialSpec,
        builds: tuple[Prepared, Prepared],
        stands: tuple[Harness, ...],
        seen: Seen,
    ) -> None:
        """Runs beyond physics, and too much noise; a hold trial's goals are counted, not timed."""
        _, shapes = probe_shapes(self._shelf.config)
        threads = max(build.config.run.threads for build in builds)

        def second(before: Ceilings, work: PhaseWork) -> Ceilings:
            torch.set_num_threads(threads)  # as many as the runs had
            return self._tools.measure_again(before, work, shapes)

        work = {build.side: build.price.work for build in builds}
        before = self._ceilings
        self._ceilings = check_floor(seen, work, before, second)
        if self._remember is not None and self._ceilings != before:
            self._remember(self._ceilings)
        if spec.kind == "hold":
            return
        warmed = [stand.warmed for stand in reversed(stands)]
        noise = noise_fault(seen.pairs, seen.singles, warmed, seen.load_pairs)
        if noise is not None:
            seen.faults.append(noise)

    def _environment(self, config: EngineConfig, started: str) -> Environment:
        return Environment(
            fingerprint=self._capabilities.fingerprint,
            platform=self._capabilities.platform,
            python_version=self._capabilities.python_version,
            torch_version=self._capabilities.torch_version,
            threads=config.run.threads,
            wait_policy=self._wait_policy,
            clock_verified=False,  # no portable way to read a CPU's clock and throttling
            model_digest=self._shelf.digest,
            model_name=clean(self._shelf.name, limit=120, one_line=True),
            started_at=started,
        )


def _memory(build: Prepared, flood: Flood | None) -> MemoryAccount:
    """The build's account; where the budget broke, that of the moment beside its price."""
    if flood is None or flood.ledger.parts.keys() != build.price.parts.keys():
        return build.memory
    before = build.memory
    return account(build.price.parts, flood.ledger.parts, before.kv_tokens, before.weight_elements)


def _noticed(report: Quantised | None, notices: tuple[Notice, ...]) -> Quantised | None:
    """The report with what was noticed once its quality had been looked at."""
    if report is None or not notices:
        return report
    return msgspec.structs.replace(report, notices=report.notices + notices)
