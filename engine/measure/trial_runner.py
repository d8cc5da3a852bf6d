"""Runs one trial from spec to result: load, warm up, time, check, weigh, compare. Judges nothing.

The order is fixed: everything timed comes first, in ABBA pairs; whatever would disturb the clock
(scoring outputs, quality) comes after the last timed run. What goes wrong on the way becomes a
fault of the result; only an abort, or a build that cannot be, ends a trial without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import torch

from engine.capabilities import Capabilities
from engine.clean import clean
from engine.config import EngineConfig
from engine.intervals import decide, settled
from engine.machine import Ceilings, MachineProfile
from engine.measure import ceilings as ceilings_module
from engine.measure.account import account
from engine.measure.calibrate import probe_shapes
from engine.measure.faults import beaten_floor, noise_fault, too_fast, wrong_output
from engine.measure.harness import BuildEngine, Harness, Side
from engine.measure.output_check import WrongToken, check_output, chosen_request
from engine.measure.quality import QualityBook
from engine.measure.reporter import Reporter
from engine.measure.shelf import Shelf
from engine.measure.timing import Clock, Episode, OutputFault, Prompts, system_clock
from engine.measure.workload import Workload, corpus_text
from engine.messages import Event
from engine.metrics import Evidence, samples
from engine.model.llama import Llama
from engine.price import Price, price
from engine.resolve import Resolved, resolve
from engine.run.engine import Engine
from engine.trial import (
    Bound,
    Environment,
    Fault,
    Pair,
    PhaseWork,
    Quality,
    RunSample,
    TrialResult,
    TrialSpec,
)

_AFTERWARDS = frozenset({"kl", "top1", "perplexity_ratio"})
"""Metrics measured after the last pair: they cannot keep a trial looking."""


@dataclass(frozen=True)
class Instruments:
    """What a trial is measured with; tests bring their own."""

    clock: Clock = system_clock
    make_engine: Callable[[Llama, EngineConfig, frozenset[int]], BuildEngine] = (
        lambda model, config, eos_ids: Engine(model, config, eos_ids=eos_ids)
    )
    check_output: Callable[[Llama, Episode, int, str], WrongToken | None] = check_output
    measure_again: Callable[[Ceilings, PhaseWork, Sequence[tuple[int, int]]], Ceilings] = (
        ceilings_module.measure_again
    )


@dataclass
class _Seen:
    """What a trial has gathered so far."""

    pairs: list[Pair] = field(default_factory=list)
    singles: list[RunSample] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    quality: Quality | None = None
    text: str = ""


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
            Aborted: the player stopped it; nothing is left running.
        """
        started = datetime.now(UTC).isoformat(timespec="seconds")
        desk = Reporter(job, self._emit, self._aborted, self._tools.clock)
        resolved, reference_resolved = self._resolve(spec.build), self._resolve(spec.reference)
        candidate, load_seconds = self._set_up("candidate", resolved.config, desk)
        reference, _ = self._set_up("reference", reference_resolved.config, desk)
        prices: dict[Side, Price] = {
            side.side: self._price(side) for side in (candidate, reference)
        }
        accounts = {
            side.side: account(prices[side.side].parts, side.engine.allocated())
            for side in (candidate, reference)
        }
        evidence = Evidence(
            pairs=(),
            singles=(),
            work=prices["candidate"].work,
            ceilings=self._ceilings,
            memory=accounts["candidate"],
            reference_memory=accounts["reference"],
        )
        seen = _Seen()
        try:
            self._time(spec, candidate, reference, evidence, seen, desk)
            self._check_outputs(spec, (candidate, reference), seen, desk)
            seen.text = clean(candidate.answer(self._shelf.tokenizer), limit=400)
            if spec.quality and not seen.faults:
                seen.quality = self._quality(candidate, desk)
        except (OutputFault, ArithmeticError) as error:
            what = clean(str(error), limit=300, one_line=True)
            seen.faults.append(Fault("wrong_output", {"what": what}))
        threads = max(resolved.config.run.threads, reference_resolved.config.run.threads)
        self._check_floor(seen, {side: found.work for side, found in prices.items()}, threads)
        noise = noise_fault(seen.pairs, seen.singles, (candidate.warmed, reference.warmed))
        if noise is not None:
            seen.faults.append(noise)
        return TrialResult(
            spec=spec,
            config=resolved.config,
            reference_config=reference_resolved.config,
            reasons=resolved.reasons,
            pairs=tuple(seen.pairs),
            singles=tuple(seen.singles),
            warmup_runs=candidate.warmed.runs + reference.warmed.runs,
            load_seconds=load_seconds,
            candidate_work=prices["candidate"].work,
            reference_work=prices["reference"].work,
            memory=accounts["candidate"],
            reference_memory=accounts["reference"],
            quality=seen.quality,
            kernel_path=candidate.engine.kernel_path,
            reference_kernel_path=reference.engine.kernel_path,
            prefix_hit_rate=0.0,  # this cache shares no prefixes, and no two prompts begin alike
            ceilings=self._ceilings,
            noise=self._machine.noise,
            faults=tuple(seen.faults),
            environment=self._environment(resolved.config, started),
            sample_text=seen.text,
        )

    def _resolve(self, build: dict[str, int | str]) -> Resolved:
        return resolve(build, self._capabilities, self._shelf.config, self._machine.threads)

    def _set_up(self, side: Side, config: EngineConfig, desk: Reporter) -> tuple[Harness, float]:
        """A build on the bench, and the seconds its weights took to make ready."""
        desk.progress("loading", 0, 1, detail=config.run.precision)
        torch.set_num_threads(config.run.threads)
        start = self._tools.clock()
        model = self._shelf.llama(config.run.precision)
        seconds = (self._tools.clock() - start) / 1e9
        desk.check()
        engine = self._tools.make_engine(model, config, self._shelf.tokenizer.eos_ids)
        return Harness(side, config, engine, self._tools.clock, desk), seconds

    def _price(self, build: Harness) -> Price:
        packed = "packed" in build.engine.kernel_path.get("head", "")
        return price(build.config, self._shelf.config, packed_head=packed)

    def _time(
        self,
        spec: TrialSpec,
        candidate: Harness,
        reference: Harness,
        evidence: Evidence,
        seen: _Seen,
        desk: Reporter,
    ) -> None:
        """Everything the clock sees. A timeline runs its one build; the reference is not run."""
        tokenizer = self._shelf.tokenizer
        workload = Workload(tokenizer, spec.seed, tokenizer.encode(corpus_text()))
        sides = (candidate,) if spec.kind == "timeline" else (reference, candidate)
        for done, side in enumerate(sides):
            desk.progress("warmup", done, len(sides))
            side.warm_up(workload.prompts)
        if spec.kind == "timeline":
            self._time_singles(spec, candidate, workload, seen, desk)
        else:
            self._time_pairs(spec, candidate, reference, evidence, workload, seen, desk)

    def _time_singles(
        self, spec: TrialSpec, build: Harness, workload: Workload, seen: _Seen, desk: Reporter
    ) -> None:
        start = self._tools.clock()
        for done in range(spec.repeats):
            left = self._left(start, done, spec.repeats) or build.warmed.seconds * spec.repeats
            desk.progress("timeline", done, spec.repeats, seconds_left=left)
            prompts = workload.prompts(build.prompts_needed, build.config.workload.prompt)
            seen.singles.append(build.run(prompts))
        desk.progress("timeline", spec.repeats, spec.repeats, seconds_left=0.0)

    def _time_pairs(
        self,
        spec: TrialSpec,
        candidate: Harness,
        reference: Harness,
        evidence: Evidence,
        workload: Workload,
        seen: _Seen,
        desk: Reporter,
    ) -> None:
        """AB, BA, AB, ... to the first look, then on while a goal is open and looks remain."""
        bounds = [bound for bound in spec.bounds if bound.metric not in _AFTERWARDS]
        start = self._tools.clock()
        for look in spec.looks:
            while len(seen.pairs) < look:
                done = len(seen.pairs)
                both = candidate.warmed.seconds + reference.warmed.seconds
                left = self._left(start, done, look) or both * look
                seen.pairs.append(
                    self._time_pair(done, look, left, candidate, reference, workload, desk)
                )
            desk.progress("pairs", look, look, seconds_left=0.0)
            if _settled(spec, bounds, replace(evidence, pairs=tuple(seen.pairs))):
                return

    def _time_pair(
        self,
        number: int,
        look: int,
        seconds_left: float,
        candidate: Harness,
        reference: Harness,
        workload: Workload,
        desk: Reporter,
    ) -> Pair:
        """One pair on the same fresh prompts; the build with fewer takes the first of them."""
        sides = (reference, candidate)
        count = max(side.prompts_needed for side in sides)
        length = max(side.config.workload.prompt for side in sides)
        prompts: Prompts = workload.prompts(count, length)
        runs: dict[str, RunSample] = {}
        for side in sides if number % 2 == 0 else reversed(sides):
            order = "A" if side.side == "reference" else "B"
            desk.progress("pairs", number, look, order, seconds_left)
            runs[side.side] = side.run(prompts)
        return Pair("AB" if number % 2 == 0 else "BA", runs["reference"], runs["candidate"])

    def _left(self, start: int, done: int, total: int) -> float | None:
        """Seconds left at the pace so far; None before anything is done."""
        if done == 0:
            return None
        return (self._tools.clock() - start) / 1e9 / done * (total - done)

    def _check_outputs(
        self, spec: TrialSpec, sides: Sequence[Harness], seen: _Seen, desk: Reporter
    ) -> None:
        """Score one request of every timed unit again, with the float32 model."""
        runs = [(side, number, run) for side in sides for number, run in enumerate(side.timed)]
        judge = self._shelf.llama("float32")
        for done, (side, number, run) in enumerate(runs):
            desk.progress("checking", done, len(runs))
            request = chosen_request(spec.seed, number, len(run.prompts))
            precision = side.config.run.precision
            wrong = self._tools.check_output(judge, run, request, precision)
            if wrong is not None:
                seen.faults.append(wrong_output(side.side, number, request, precision, wrong))
                return

    def _quality(self, candidate: Harness, desk: Reporter) -> Quality:
        """Against the float32 model, with the candidate's threads."""
        torch.set_num_threads(candidate.config.run.threads)
        desk.progress("quality", 0, 1)
        return self._book.look_up(
            self._shelf.digest,
            self._shelf.llama("float32"),
            self._shelf.llama(candidate.config.run.precision),
            self._shelf.tokenizer,
            lambda done, total: desk.progress("quality", done, total),
        )

    def _check_floor(self, seen: _Seen, work: Mapping[Side, PhaseWork], threads: int) -> None:
        """A run beyond its ceiling has the ceiling measured once more before it is disbelieved,
        with as many threads as the runs had."""
        beaten = beaten_floor(seen.pairs, seen.singles, work, self._ceilings)
        if beaten is None:
            return
        _, shapes = probe_shapes(self._shelf.config)
        torch.set_num_threads(threads)
        before = self._ceilings
        self._ceilings = self._tools.measure_again(before, work[beaten.side], shapes)
        if self._remember is not None and self._ceilings != before:
            self._remember(self._ceilings)
        beaten = beaten_floor(seen.pairs, seen.singles, work, self._ceilings)
        if beaten is not None:
            seen.faults.append(too_fast(beaten))

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


def _settled(spec: TrialSpec, bounds: Sequence[Bound], evidence: Evidence) -> bool:
    """Whether every goal is decided by the pairs so far: the judge's own rule."""
    found = samples(evidence, (bound.metric for bound in bounds))
    return settled(decide(found, bounds, spec.alpha, spec.dead_band))
