"""The session's side of the engine process: woken once, asked one thing at a time.

Nothing is started before `ready`. What the engine says of itself stays known after it has ended,
and from one session to the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from engine.capabilities import Capabilities
from engine.drafters import NO_OTHERS, Drafters
from engine.machine import MachineProfile, worker_environment
from engine.messages import (
    AnyCommand,
    AnyEvent,
    Calibrate,
    Calibrated,
    Failed,
    Hello,
    Load,
    Loaded,
    RunTrial,
    TrialDone,
)
from engine.model.config import ModelConfig
from engine.trial import TrialResult, TrialSpec
from game.known_engine import VERSION, Choice, KnownEngine, recall, remember
from game.outcome import EngineUnavailable, SessionInputError

if TYPE_CHECKING:
    from engine.client import WorkerDied

OnEvent = Callable[[AnyEvent], None]


class Client(Protocol):
    """What the bridge needs of `engine.client.WorkerClient`; tests put another in its place."""

    async def start(self) -> Hello: ...

    async def run(
        self,
        make_command: Callable[[int], AnyCommand],
        on_event: OnEvent | None = None,
        deadline: float | None = None,
    ) -> AnyEvent: ...

    async def abort(self) -> None: ...

    async def stop(self) -> None: ...


MakeClient = Callable[[str | None, str, Mapping[str, str]], Client]
"""(worker command line, device, environment) -> a client that has not started anything."""


def make_worker_client(worker: str | None, device: str, environment: Mapping[str, str]) -> Client:
    from engine.client import WorkerClient, worker_command

    return WorkerClient(worker_command(worker), environment=environment, device=device)


class EngineBridge:
    """One choice of worker, device and model, and of a model that drafts for it ("": none)."""

    def __init__(
        self,
        worker: str | None = None,
        device: str = "cpu",
        model: str = "default",
        make_client: MakeClient = make_worker_client,
        draft: str = "",
    ) -> None:
        self._worker, self._device = worker, device
        self._model, self._draft = model, draft
        self._make_client = make_client
        self._client: Client | None = None
        self._ready = False
        self._waking = asyncio.Lock()
        self._aborting = False
        self._recalled = False
        self._capabilities: Capabilities | None = None
        self._model_config: ModelConfig | None = None
        self._model_name = ""
        self._drafters = NO_OTHERS
        self._machine: MachineProfile | None = None

    @property
    def awake(self) -> bool:
        """True once `ready` went through in this session."""
        return self._ready

    @property
    def capabilities(self) -> Capabilities | None:
        self._recall()
        return self._capabilities

    @property
    def model_config(self) -> ModelConfig | None:
        self._recall()
        return self._model_config

    @property
    def model_name(self) -> str:
        self._recall()
        return self._model_name

    @property
    def drafters(self) -> Drafters:
        """What can draft beside the model itself."""
        self._recall()
        return self._drafters

    @property
    def machine(self) -> MachineProfile | None:
        self._recall()
        return self._machine

    async def ready(self, on_event: OnEvent | None = None) -> None:
        """Start the worker, load the model, and measure the machine where that was never done.

        A second call waits for the first and then returns at once.

        Raises:
            SessionInputError: the model or the worker named cannot be used; says why.
            EngineUnavailable: the engine process could not be had.
        """
        async with self._waking:
            if self._ready:
                return
            self._aborting = False
            hello = await self._start()
            self._recall()
            self._capabilities = hello.capabilities
            if on_event is not None:
                on_event(hello)
            loaded = await self._ask(lambda job: Load(job, self._model, self._draft), on_event)
            if isinstance(loaded, Loaded):
                self._model_config, self._model_name = loaded.model, loaded.name
                self._drafters = loaded.drafters
                _tell(on_event, loaded)
            await self._measure(on_event)
            self._ready = True
        self._remember()

    async def run_trial(self, spec: TrialSpec, on_event: OnEvent | None = None) -> TrialResult:
        """Run one trial on the engine, waking it first.

        Raises:
            SessionInputError: the engine refused the build, or cannot load the model.
            EngineUnavailable: there is no result; `code` says why.
        """
        await self.ready(on_event)
        self._aborting = False
        answer = await self._ask(lambda job: RunTrial(job, spec), on_event)
        if not isinstance(answer, TrialDone):
            raise EngineUnavailable("internal", f"the engine answered {type(answer).__name__}")
        return answer.result

    async def abort(self) -> None:
        """Stop what the engine is doing; the call that waits for it ends with code `aborted`."""
        if self._client is not None:
            self._aborting = True
            await self._client.abort()

    async def close(self) -> None:
        """End the engine process. What it said of itself stays known."""
        client, self._client, self._ready = self._client, None, False
        if client is not None:
            await client.stop()

    async def _start(self) -> Hello:
        if self._client is None:
            machine = self.machine
            environment = worker_environment(machine.wait_policy) if machine else {}
            try:
                self._client = self._make_client(self._worker, self._device, environment)
            except ValueError as error:
                raise SessionInputError(str(error)) from None
        from engine.client import WorkerDied

        try:
            return await self._client.start()
        except WorkerDied as death:
            raise self._lost(death) from death

    async def _measure(self, on_event: OnEvent | None) -> None:
        answer = await self._ask(lambda job: Calibrate(job), on_event)
        if isinstance(answer, Calibrated):
            self._machine = answer.profile
            _tell(on_event, answer)

    async def _ask(
        self, make_command: Callable[[int], AnyCommand], on_event: OnEvent | None
    ) -> AnyEvent:
        from engine.client import WorkerDied

        assert self._client is not None
        try:
            answer = await self._client.run(make_command, on_event)
        except WorkerDied as death:
            raise self._lost(death) from death
        if not isinstance(answer, Failed):
            return answer
        if answer.kind in ("input", "model"):
            raise SessionInputError(answer.message)
        codes = {"aborted": "aborted", "memory": "out_of_memory"}
        code = "aborted" if self._aborting else codes.get(answer.kind, "internal")
        raise EngineUnavailable(code, answer.message)

    def _lost(self, death: WorkerDied) -> EngineUnavailable:
        """Why the engine is gone. The worker may have been ended because it would not stop."""
        from engine.client import RestartLimit

        if self._aborting or death.cause in ("abort", "stopped"):
            return EngineUnavailable("aborted", str(death))
        code = "restart_limit" if isinstance(death, RestartLimit) else "worker_died"
        return EngineUnavailable(code, str(death))

    def _recall(self) -> None:
        if self._recalled:
            return
        self._recalled = True
        known = recall(self._choice)
        if known is not None and self._capabilities is None:
            self._capabilities, self._model_config = known.capabilities, known.model
            self._model_name, self._machine = known.model_name, known.machine
            self._drafters = known.drafters

    def _remember(self) -> None:
        if self._capabilities is not None and self._model_config is not None:
            known = KnownEngine(
                VERSION,
                self._capabilities,
                self._model_config,
                self._model_name,
                self._machine,
                self._drafters,
            )
            remember(self._choice, known)

    @property
    def _choice(self) -> Choice:
        return self._worker, self._device, self._model, self._draft


def _tell(on_event: OnEvent | None, event: AnyEvent) -> None:
    """The client returns a job's answer; whoever watches the waking hears it too."""
    if on_event is not None:
        on_event(event)
