"""What stays on the bench between commands, with the measuring rooms stood in for."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import msgspec
import pytest
from known_machines import make_capabilities

from engine.capabilities import Capabilities
from engine.config import EngineConfig
from engine.domains import KnobError
from engine.machine import Ceilings, MachineProfile, load_profile, save_profile
from engine.measure.shelf import Shelf
from engine.messages import (
    Abort,
    AnyCommand,
    Bench,
    Calibrate,
    Calibrated,
    Chat,
    Configure,
    Event,
    Load,
    Loaded,
    Pressed,
    Progress,
    Ready,
    RunTrial,
    Shutdown,
)
from engine.model.config import ModelConfig
from engine.model.errors import ModelError
from engine.model.store import ModelSource
from engine.quantised import LayerError
from engine.recipe import Recipe
from engine.serve import workbench
from engine.serve.failures import Aborted, InputError
from engine.serve.jobs import Desk
from engine.serve.workbench import Workbench, full_names
from engine.trial import Fault, TrialSpec

MACHINE = make_capabilities(physical_cores=4, logical_cores=8)
MODEL = ModelConfig("llama", 1, 8, 1, 1, 8, 16, 32, 512, 1e4, 1e-5, True)
PROFILE = MachineProfile(
    1,
    MACHINE.fingerprint,
    "2025-11-29",
    3,
    "passive",
    Ceilings(1e10, {"float32": 1e11}, 1e-6),
    0.01,
)
SPEC = TrialSpec("pendulum", "paired", {"batch": 8}, {"schedule.batch": 1}, seed=1)


class Model(SimpleNamespace):
    """Stands in for a LoadedModel; can be weakly referred to."""


class Tokens:
    """A tokenizer of letters."""

    def __init__(self, letters: str) -> None:
        self._letters = letters
        self.vocabulary_size = len(letters)
        self.special_ids: frozenset[int] = frozenset()

    def token_bytes(self, token: int) -> bytes:
        return self._letters[token].encode()


@dataclass
class Rooms:
    """What the stood-in rooms saw and shall answer."""

    bench: Workbench
    events: list[Event]
    models: list[weakref.ref[Model]]
    calibrations: list[MachineProfile]
    specs: list[TrialSpec]
    faults: tuple[Fault, ...] = ()
    raised_ceilings: Ceilings | None = None
    stopped: bool = False
    together: int = 1

    def ask(self, command: Any) -> Any:
        desk = Desk(command.job, self.events.append, lambda: self.stopped)
        return self.bench.handlers()[type(command)](command, desk)


@pytest.fixture
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rooms]:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path))
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    rooms = Rooms(Workbench(MACHINE), [], [], [], [])

    def find(spec: str) -> ModelSource:
        if spec == "lost":
            raise ModelError("no model is called 'lost'")
        return ModelSource("gguf", Path(spec), spec)

    def load(source: ModelSource) -> Model:
        gc.collect()
        alive = [ref for ref in rooms.models if ref() is not None]
        assert len(alive) < rooms.together, "too many models in memory"
        if source.name == "broken":
            raise ModelError("broken: is cut short")
        model = Model(config=MODEL, name=source.name, digest="d", source=str(source.path))
        model.tensors = {}
        model.tokenizer = Tokens("abd" if source.name == "foreign" else "abc")
        rooms.models.append(weakref.ref(model))
        return model

    def calibrate(capabilities: Capabilities, *_: Any, **more: Any) -> MachineProfile:
        profile = msgspec.structs.replace(PROFILE, measured_at=f"{len(rooms.calibrations)}")
        rooms.calibrations.append(profile)
        save_profile(profile)
        return profile

    class Runner:
        def __init__(self, *_: Any, remember: Callable[[Ceilings], None], **more: Any) -> None:
            self.remember = remember

        def run(self, job: int, spec: TrialSpec) -> Any:
            rooms.specs.append(spec)
            if rooms.raised_ceilings is not None:
                self.remember(rooms.raised_ceilings)
            return SimpleNamespace(faults=rooms.faults)

    monkeypatch.setattr(workbench, "find_model", find)
    monkeypatch.setattr(workbench, "load_model", load)
    monkeypatch.setattr(workbench, "calibrate", calibrate)
    monkeypatch.setattr(workbench, "TrialRunner", Runner)
    yield rooms


def test_a_second_model_is_read_after_the_first_was_let_go(rooms: Rooms) -> None:
    for name in ("one", "two"):
        loaded = rooms.ask(Load(1, name))
        assert isinstance(loaded, Loaded)
        assert loaded.name == name


def test_a_model_that_is_not_there_leaves_the_one_that_is(rooms: Rooms) -> None:
    rooms.ask(Load(1, "one"))
    with pytest.raises(ModelError):
        rooms.ask(Load(2, "lost"))
    assert isinstance(rooms.ask(Configure(3, {})), Ready)


def test_a_model_that_cannot_be_read_leaves_none(rooms: Rooms) -> None:
    rooms.ask(Load(1, "one"))
    with pytest.raises(ModelError):
        rooms.ask(Load(2, "broken"))
    with pytest.raises(InputError, match="load one first"):
        rooms.ask(Configure(3, {}))


def test_a_model_that_drafts_is_loaded_beside_the_target_and_let_go_with_it(rooms: Rooms) -> None:
    rooms.together = 2
    loaded = rooms.ask(Load(1, "one", "other"))
    assert loaded.name == "one"
    assert (loaded.drafters.other, loaded.drafters.other_name) == (MODEL, "other")
    assert loaded.drafters.trained is None
    assert rooms.ask(Configure(2, {"draft.kind": "model"})).config.draft.kind == "model"
    assert rooms.ask(Load(3, "two")).drafters.other is None
    with pytest.raises(KnobError, match="no draft model was named"):
        rooms.ask(Configure(4, {"draft.kind": "model"}))
    gc.collect()
    assert [ref() is not None for ref in rooms.models] == [False, False, True]


def test_a_draft_of_other_tokens_is_refused_with_the_first(rooms: Rooms) -> None:
    rooms.together = 2
    with pytest.raises(InputError, match="foreign cannot draft for one: token 2 is b'c' in the"):
        rooms.ask(Load(1, "one", "foreign"))
    with pytest.raises(InputError, match="no model is loaded"):
        rooms.ask(Configure(2, {}))
    with pytest.raises(ModelError):
        rooms.ask(Load(3, "one", "lost"))


def test_a_load_that_was_stopped_leaves_none(rooms: Rooms) -> None:
    rooms.stopped = True
    with pytest.raises(Aborted):
        rooms.ask(Load(1, "one"))
    rooms.stopped = False
    with pytest.raises(InputError):
        rooms.ask(Configure(2, {}))


@pytest.mark.parametrize("command", [Configure(1, {}), RunTrial(1, SPEC), Bench(1)])
def test_without_a_model_the_player_is_told(rooms: Rooms, command: Any) -> None:
    with pytest.raises(InputError, match="no model is loaded"):
        rooms.ask(command)


def test_configure_takes_the_calibrated_threads(rooms: Rooms) -> None:
    rooms.ask(Load(1, "one"))
    assert rooms.ask(Configure(2, {})).config.run.threads == MACHINE.physical_cores
    save_profile(PROFILE)
    ready = rooms.ask(Configure(3, {"batch": 8}))
    assert ready.config.run.threads == PROFILE.threads
    assert ready.config.schedule.batch == 8
    assert rooms.calibrations == []


def test_a_profile_that_stands_is_not_measured_again_unless_asked(rooms: Rooms) -> None:
    save_profile(PROFILE)
    assert rooms.ask(Calibrate(1)).profile == PROFILE
    assert rooms.calibrations == []
    assert rooms.ask(Calibrate(2, force=True)).profile == rooms.calibrations[0]


@pytest.mark.parametrize(("policy", "restart"), [("active", True), ("passive", False)])
def test_another_wait_policy_asks_for_a_restart(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch, policy: str, restart: bool
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    answer = rooms.ask(Calibrate(1))
    assert isinstance(answer, Calibrated)
    assert answer.restart is restart


def test_a_trial_measures_the_machine_once_and_names_its_knobs_in_full(rooms: Rooms) -> None:
    rooms.ask(Load(1, "one"))
    for job in (2, 3):
        rooms.ask(RunTrial(job, SPEC))
    assert len(rooms.calibrations) == 1
    assert rooms.specs[0].build == {"schedule.batch": 8}
    assert rooms.specs[0].reference == {"schedule.batch": 1}


def test_two_noisy_trials_in_a_row_have_the_machine_measured_again(rooms: Rooms) -> None:
    rooms.ask(Load(1, "one"))
    rooms.faults = (Fault("noise"),)
    for job in (2, 3):
        rooms.ask(RunTrial(job, SPEC))
    assert len(rooms.calibrations) == 1
    for job in (4, 5):
        rooms.ask(RunTrial(job, SPEC))
    assert len(rooms.calibrations) == 2


def test_raised_ceilings_are_kept(rooms: Rooms) -> None:
    rooms.ask(Load(1, "one"))
    rooms.raised_ceilings = Ceilings(9e10, {"float32": 9e11}, 1e-6)
    rooms.ask(RunTrial(2, SPEC))
    kept = load_profile(MACHINE.fingerprint)
    assert kept is not None
    assert kept.ceilings == rooms.raised_ceilings
    assert kept.threads == PROFILE.threads


def test_a_chat_asks_for_its_own_room_and_not_for_the_workload_s(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build whose workload, batch or vessel would be refused in a trial still answers, with its
    cache and memory settings; an illegal one of those does not."""
    seen: list[EngineConfig] = []

    def answer(
        command: Any, loaded: Any, network: Any, config: EngineConfig, desk: Any, draft: Any
    ) -> str:
        assert draft is None
        seen.append(config)
        return "answered"

    monkeypatch.setattr(workbench.chat, "answer", answer)
    monkeypatch.setattr(Workbench, "_network", lambda *_: None)
    rooms.ask(Load(1, "one"))
    build = {
        "workload.prompt": 500,
        "workload.output": 400,
        "schedule.batch": 64,
        "memory.budget": 95,
        "overflow": "break",
        "cache.layout": "paged",
        "block_size": 32,
        "cache.bits": 8,
    }
    assert rooms.ask(Chat(2, "hello", build)) == "answered"
    (config,) = seen
    assert (config.memory.budget, config.memory.overflow) == (95, "break")
    assert (config.cache.layout, config.cache.block_size, config.cache.bits) == ("paged", 32, 8)
    for wrong in ({"memory.budget": -1}, {"workload.prompt": 0}, {"cache.bits": 5}):
        with pytest.raises(KnobError, match="legal"):
            rooms.ask(Chat(3, "hello", wrong))


def test_a_chat_is_answered_by_the_weights_its_build_asks_for(
    rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quantised once, said as it goes, and ready the second time."""
    asked: list[Recipe] = []
    networks: list[Any] = []

    class Network(SimpleNamespace):
        pass

    class Bits(Shelf):
        def quantised(self, recipe: Recipe, precision: str, watch: Any = None) -> Any:
            if recipe not in asked:
                watch.begin(recipe)
                watch.pressed(LayerError(0, "qkv", 0.1), None, 1, 1)
                asked.append(recipe)
            return None

        def llama(
            self, precision: str, recipe: Any = None, crossover: int = 0, watch: Any = None
        ) -> Any:
            networks.append((precision, recipe, crossover))
            self._low_bit[recipe, precision] = Network()
            return self._low_bit[recipe, precision]

    def answer(
        command: Any, loaded: Any, network: Any, config: EngineConfig, desk: Any, draft: Any
    ) -> str:
        assert draft is None
        assert isinstance(network, Network)
        return f"{config.weights.bits} bits by {config.weights.method}"

    warmed: list[int] = []
    monkeypatch.setattr(workbench, "Shelf", Bits)
    monkeypatch.setattr(workbench, "warm", lambda _, weights: warmed.append(weights.bits))
    monkeypatch.setattr(workbench.chat, "answer", answer)
    rooms.ask(Load(1, "one"))
    build = {"bits": 4, "method": "awq", "group": 8, "crossover": 4, "run.precision": "bfloat16"}
    with pytest.raises(KnobError, match="ambiguous"):
        rooms.ask(Chat(2, "hello", build))
    build = {
        "weights.bits": 4,
        "method": "awq",
        "weights.group": -1,
        "crossover": 4,
        "run.precision": "bfloat16",
    }
    for job in (3, 4):
        assert rooms.ask(Chat(job, "hello", build)) == "4 bits by awq"
    assert len(asked) == 1 and asked[0].method == "awq" and warmed == [4]
    assert {(precision, crossover) for precision, _, crossover in networks} == {("bfloat16", 4)}
    phases = [event.phase for event in rooms.events if isinstance(event, Progress)]
    assert phases.index("calibrating") < phases.index("quantising") < len(phases)
    assert [event.build for event in rooms.events if isinstance(event, Pressed)] == ["candidate"]


def test_every_command_that_is_answered_has_a_handler(rooms: Rooms) -> None:
    assert set(rooms.bench.handlers()) == set(get_args(AnyCommand)) - {Abort, Shutdown}


def test_names_are_completed_and_wrong_ones_refused() -> None:
    assert full_names({"batch": 8, "run.threads": 1}) == {"schedule.batch": 8, "run.threads": 1}
    with pytest.raises(KnobError, match=r"nearest: schedule\.batch"):
        full_names({"bacth": 8})
    with pytest.raises(InputError, match=r"schedule\.batch is set twice"):
        full_names({"batch": 8, "schedule.batch": 4})
