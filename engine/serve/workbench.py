"""What each command does, and what stays on the bench between two of them.

One model lies on it: as read from disk, and as last made ready for a precision. Everything here
runs in the worker's main thread, one job at a time.
"""

from __future__ import annotations

import gc
import time

import msgspec
import torch

from engine.capabilities import Capabilities
from engine.config import (
    Build,
    EngineConfig,
    MemoryConfig,
    RunConfig,
    WeightsConfig,
    complete,
)
from engine.domains import Value
from engine.knobs import find_knob
from engine.machine import Ceilings, MachineProfile, current_wait_policy, load_profile, save_profile
from engine.measure.bench import bench
from engine.measure.calibrate import calibrate
from engine.measure.full_model import full_models_home
from engine.measure.noise import NoiseWatch
from engine.measure.quality import QualityBook
from engine.measure.quantising import Watch, wanted, watched_at
from engine.measure.reporter import Reporter
from engine.measure.shelf import Shelf
from engine.measure.timing import system_clock
from engine.measure.trial_runner import TrialRunner
from engine.messages import (
    Bench,
    Calibrate,
    Calibrated,
    Chat,
    Command,
    Configure,
    Event,
    Load,
    Loaded,
    Progress,
    Ready,
    RunTrial,
    TrialDone,
)
from engine.model.llama import Llama
from engine.model.loader import LoadedModel, load_model
from engine.model.same_tokens import first_difference
from engine.model.store import ModelSource, find_model
from engine.recipe import Recipe
from engine.resolve import Resolved, resolve
from engine.run.engine import Engine, SamplingParams
from engine.serve import chat
from engine.serve.failures import InputError
from engine.serve.idle import release_threads
from engine.serve.jobs import Desk, Handler, Handlers

_WARM_UP_PROMPT, _WARM_UP_OUTPUT = 16, 3

_NOT_OF_A_CHAT = ("workload.", "memory.", "schedule.batch")
"""Settings that a chat's config is not resolved with: it serves one request of its own length."""


class Workbench:
    """The worker's state: capabilities, the loaded model, its networks by precision."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._loaded: LoadedModel | None = None
        self._shelf: Shelf | None = None
        self._warm: set[tuple[str, Recipe | None]] = set()
        self._book = QualityBook(full_models_home())
        self._watch = NoiseWatch()
        self._doubtful = False

    def handlers(self) -> Handlers:
        """The table the worker looks commands up in."""
        table: dict[type[Command], Handler] = {
            Load: self.load,
            Calibrate: self.calibrate,
            Configure: self.configure,
            RunTrial: self.trial,
            Chat: self.chat,
            Bench: self.rates,
        }
        return {command: _then_release(handler) for command, handler in table.items()}

    def load(self, command: Load, desk: Desk) -> Event:
        """Put a model on the bench; the one before it is let go first, not after.

        Raises:
            ModelError: there is no such model, or its files cannot be used.
            InputError: the model that is to draft for it speaks in other tokens.
        """
        source = find_model(command.model)
        beside = find_model(command.draft) if command.draft else None
        self._clear()
        begun = time.perf_counter()
        loaded = self._read(source, desk)
        other = None if beside is None else self._read(beside, desk)
        if other is not None:
            check_draft_model(loaded, other)
        self._loaded, self._shelf = loaded, Shelf(loaded, other=other)
        return Loaded(
            job=desk.job,
            model=loaded.config,
            name=loaded.name,
            digest=loaded.digest,
            source=loaded.source,
            seconds=time.perf_counter() - begun,
            drafters=self._shelf.drafters,
        )

    def calibrate(self, command: Calibrate, desk: Desk) -> Event:
        """Measure this machine unless its profile stands; the model's shapes are timed.

        Raises Aborted, CalibrationError.
        """
        profile = self._measure(desk, command.force)
        restart = profile.wait_policy != current_wait_policy()
        return Calibrated(job=desk.job, profile=profile, restart=restart)

    def configure(self, command: Configure, desk: Desk) -> Event:
        """Say what a build would run as. Raises KnobError, or InputError without a model."""
        resolved = self._resolve(command.build)
        return Ready(job=desk.job, config=resolved.config, reasons=resolved.reasons)

    def trial(self, command: RunTrial, desk: Desk) -> Event:
        """Run a trial, measuring the machine first where it never was, or where trial after
        trial came out noisy: then something has changed since.

        Raises KnobError, InputError, Aborted.
        """
        _, shelf = self._model()
        spec = command.spec
        spec = msgspec.structs.replace(
            spec, build=full_names(spec.build), reference=full_names(spec.reference)
        )
        machine = self._measure(desk, force=self._doubtful)
        self._doubtful = False

        def remember(ceilings: Ceilings) -> None:
            save_profile(msgspec.structs.replace(machine, ceilings=ceilings))

        runner = TrialRunner(
            shelf,
            machine,
            self._capabilities,
            desk.emit,
            desk.aborted,
            wait_policy=current_wait_policy(),
            book=self._book,
            remember=remember,
        )
        result = runner.run(desk.job, spec)
        self._doubtful = self._watch.saw(result.faults)
        return TrialDone(job=desk.job, result=result)

    def chat(self, command: Chat, desk: Desk) -> Event:
        """One answer, streamed. Raises KnobError, InputError, BudgetError, Aborted."""
        loaded, shelf = self._model()
        config = self._chat_config(command.build)
        torch.set_num_threads(config.run.threads)
        network = self._network(shelf, config, desk)
        draft = shelf.drafting(config, network, self._watching(desk))
        return chat.answer(command, loaded, network, config, desk, draft=draft)

    def rates(self, command: Bench, desk: Desk) -> Event:
        """Prefill and decode rates beside this machine's ceilings. Raises InputError, Aborted."""
        _, shelf = self._model()
        machine = self._measure(desk)
        return bench(
            shelf,
            machine,
            self._capabilities,
            desk.emit,
            desk.aborted,
            peers=command.peers,
            job=desk.job,
        )

    def _model(self) -> tuple[LoadedModel, Shelf]:
        if self._loaded is None or self._shelf is None:
            raise InputError("no model is loaded; load one first")
        return self._loaded, self._shelf

    def _measure(self, desk: Desk, force: bool = False) -> MachineProfile:
        profile = None if force else self._profile()
        if profile is not None:
            return profile
        model = None if self._loaded is None else self._loaded.config
        return calibrate(self._capabilities, desk.emit, desk.aborted, job=desk.job, model=model)

    def _profile(self) -> MachineProfile | None:
        return load_profile(self._capabilities.fingerprint)

    def _resolve(self, build: Build) -> Resolved:
        """The config that a build would run as on this machine."""
        profile = self._profile()
        threads = None if profile is None else profile.threads
        loaded, shelf = self._model()
        names = full_names(build)
        return resolve(names, self._capabilities, loaded.config, threads, shelf.drafters)

    def _chat_config(self, build: Build) -> EngineConfig:
        """As `_resolve`, but for what a chat decides itself: how long its one request is. Whether
        that fits the memory budget is seen when its length is known."""
        names = full_names(build)
        positions = complete(names)
        own = {name: value for name, value in names.items() if not name.startswith(_NOT_OF_A_CHAT)}
        memory = MemoryConfig(
            budget=int(positions["memory.budget"]), overflow=str(positions["memory.overflow"])
        )
        return msgspec.structs.replace(self._resolve(own).config, memory=memory)

    def _network(self, shelf: Shelf, config: EngineConfig, desk: Desk) -> Llama:
        """The network as `config` asks for it: quantised, made and warmed once.

        The first passes after packing set kernels up: they run here, so that no answer's TTFT
        pays for them.
        """
        precision, recipe = config.run.precision, wanted(config, shelf.config)
        watch = self._watching(desk)
        if recipe is not None:
            shelf.quantised(recipe, precision, watch)
        if (precision, recipe) not in self._warm or not shelf.holds(precision, recipe):
            desk.emit(Progress(job=desk.job, phase="loading", done=0, total=1, detail=precision))
            network = shelf.llama(precision, recipe, config.weights.crossover, watch)
            warm(network, config.weights)
            self._warm.add((precision, recipe))
        desk.check()
        return shelf.llama(precision, recipe, config.weights.crossover)

    def _watching(self, desk: Desk) -> Watch:
        """Tells how quantising goes on."""
        teller = Reporter(desk.job, desk.emit, desk.aborted, system_clock)
        return watched_at(teller, "candidate")

    def _read(self, source: ModelSource, desk: Desk) -> LoadedModel:
        desk.emit(Progress(job=desk.job, phase="loading", done=0, total=1, detail=source.name))
        loaded = load_model(source)
        desk.check()
        return loaded

    def _clear(self) -> None:
        self._loaded = self._shelf = None
        self._warm.clear()
        gc.collect()


def check_draft_model(target: LoadedModel, draft: LoadedModel) -> None:
    """Raises InputError where the two speak in other tokens: names the first that differs."""
    difference = first_difference(target.tokenizer, draft.tokenizer)
    if difference is not None:
        raise InputError(
            f"{draft.name} cannot draft for {target.name}: {difference}; name a model of the same "
            "tokenizer"
        )


def full_names(build: Build) -> dict[str, Value]:
    """A build whose names may be unique endings (`batch`), by its full names.

    Raises:
        KnobError: a name that is unknown (names the nearest) or ambiguous.
        InputError: one knob set twice.
    """
    full: dict[str, Value] = {}
    for name, value in build.items():
        knob = find_knob(name)
        if knob.name in full:
            raise InputError(f"{knob.name} is set twice; set it once")
        full[knob.name] = value
    return full


def _then_release(handler: Handler) -> Handler:
    def handle(command: Command, desk: Desk) -> Event:
        try:
            return handler(command, desk)
        finally:
            release_threads()

    return handle


def warm(network: Llama, weights: WeightsConfig) -> None:
    """A short request through both phases; the network was made by `weights`."""
    plain = EngineConfig(run=RunConfig(precision=network.precision), weights=weights)
    config = chat.single_request(plain, _WARM_UP_PROMPT, _WARM_UP_OUTPUT)
    engine = Engine(network, config)
    params = SamplingParams(max_tokens=_WARM_UP_OUTPUT, ignore_eos=True)
    engine.add_request([0] * _WARM_UP_PROMPT, params)
    while engine.has_work:
        engine.step()
