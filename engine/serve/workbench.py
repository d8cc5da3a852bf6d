"""What each command does, and what stays on the bench between two of them.

One model lies on it: as read from disk, and as last made ready for a precision. Everything here
runs in the worker's main thread, one job at a time.
"""

from __future__ import annotations

import gc
import time

import torch

from engine.capabilities import Capabilities
from engine.config import Build, EngineConfig, Resolved, RunConfig, resolve
from engine.knobs import find_knob
from engine.machine import MachineProfile, current_wait_policy, load_profile
from engine.measure.calibrate import calibrate
from engine.messages import (
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
)
from engine.model.llama import Llama
from engine.model.loader import LoadedModel, load_model
from engine.model.store import find_model
from engine.run.engine import Engine, SamplingParams
from engine.serve import chat
from engine.serve.failures import InputError
from engine.serve.idle import release_threads
from engine.serve.jobs import Desk, Handler, Handlers

_WARM_UP_PROMPT, _WARM_UP_OUTPUT = 16, 3


class Workbench:
    """The worker's state: capabilities, the loaded model, the network made from it."""

    def __init__(self, capabilities: Capabilities) -> None:
        self._capabilities = capabilities
        self._loaded: LoadedModel | None = None
        self._network: Llama | None = None

    def handlers(self) -> Handlers:
        """The table the worker looks commands up in."""
        table: dict[type[Command], Handler] = {
            Load: self.load,
            Calibrate: self.calibrate,
            Configure: self.configure,
            Chat: self.chat,
        }
        return {command: _then_release(handler) for command, handler in table.items()}

    def load(self, command: Load, desk: Desk) -> Event:
        """Put a model on the bench; the one before it is let go first, not after.

        Raises:
            ModelError: there is no such model, or its files cannot be used.
        """
        source = find_model(command.model)
        self._clear()
        desk.emit(Progress(job=desk.job, phase="loading", done=0, total=1, detail=source.name))
        begun = time.perf_counter()
        loaded = load_model(source)
        desk.check()
        self._loaded = loaded
        return Loaded(
            job=desk.job,
            model=loaded.config,
            name=loaded.name,
            digest=loaded.digest,
            source=loaded.source,
            seconds=time.perf_counter() - begun,
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

    def chat(self, command: Chat, desk: Desk) -> Event:
        """One answer, streamed. Raises KnobError, InputError, Aborted."""
        loaded = self._model()
        config = self._resolve(command.build).config
        torch.set_num_threads(config.run.threads)
        network = self._make_network(loaded, config.run.precision, desk)
        return chat.answer(command, loaded, network, config, desk)

    def _model(self) -> LoadedModel:
        if self._loaded is None:
            raise InputError("no model is loaded; load one first")
        return self._loaded

    def _measure(self, desk: Desk, force: bool = False) -> MachineProfile:
        profile = None if force else self._profile()
        if profile is not None:
            return profile
        model = None if self._loaded is None else self._loaded.config
        return calibrate(self._capabilities, desk.emit, desk.aborted, job=desk.job, model=model)

    def _profile(self) -> MachineProfile | None:
        return load_profile(self._capabilities.fingerprint)

    def _resolve(self, build: Build) -> Resolved:
        """The config of a build whose names may be endings (`batch`), as on the command line."""
        full: dict[str, int | str] = {}
        for name, value in build.items():
            knob = find_knob(name)
            if knob.name in full:
                raise InputError(f"{knob.name} is set twice; set it once")
            full[knob.name] = value
        profile = self._profile()
        threads = None if profile is None else profile.threads
        return resolve(full, self._capabilities, self._model().config, threads)

    def _make_network(self, loaded: LoadedModel, precision: str, desk: Desk) -> Llama:
        """The network in `precision`, made and warmed once; a change of precision replaces it.

        The first passes after packing set kernels up: they run here, so that no answer's TTFT
        pays for them.
        """
        if self._network is not None and self._network.precision == precision:
            return self._network
        self._network = None
        gc.collect()
        desk.emit(Progress(job=desk.job, phase="loading", done=0, total=1, detail=precision))
        network = Llama(loaded.config, loaded.tensors, precision)
        desk.check()
        warm(network)
        self._network = network
        return network

    def _clear(self) -> None:
        self._loaded = self._network = None
        gc.collect()


def _then_release(handler: Handler) -> Handler:
    def handle(command: Command, desk: Desk) -> Event:
        try:
            return handler(command, desk)
        finally:
            release_threads()

    return handle


def warm(network: Llama) -> None:
    """A short request through both phases."""
    plain = EngineConfig(run=RunConfig(precision=network.precision))
    config = chat.single_request(plain, _WARM_UP_PROMPT, _WARM_UP_OUTPUT)
    engine = Engine(network, config)
    params = SamplingParams(max_tokens=_WARM_UP_OUTPUT, ignore_eos=True)
    engine.add_request([0] * _WARM_UP_PROMPT, params)
    while engine.has_work:
        engine.step()
