"""The words the interface and the engine process exchange: JSON Lines, one message a line.

Commands go in on the worker's stdin. Events come out on a duplicate of its stdout; heartbeats
on a duplicate of its stderr, so that a full event pipe cannot silence them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.capabilities import Capabilities
from engine.config import EngineConfig
from engine.domains import Value
from engine.drafters import NO_OTHERS, Drafters
from engine.machine import MachineProfile
from engine.model.config import ModelConfig
from engine.page_map import PageMap
from engine.quantised import Histogram, LayerError
from engine.trial import Flood, Ledger, TrialResult, TrialSpec

PROTOCOL = 3


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    job: int


class Load(Command, frozen=True, tag="load"):
    """`model` is "default", a GGUF file or a Hugging Face folder, and so is `draft`, another model
    that can draft for it ("": none). Answer: Loaded."""

    model: str = "default"
    draft: str = ""


class Calibrate(Command, frozen=True, tag="calibrate"):
    """Measure the machine unless a profile stands (`force` measures anyway). Answer: Calibrated."""

    force: bool = False


class Configure(Command, frozen=True, tag="configure"):
    """Resolve a build without running it. Answer: Ready."""

    build: dict[str, Value]


class RunTrial(Command, frozen=True, tag="trial"):
    """Answer: TrialDone."""

    spec: TrialSpec


class Chat(Command, frozen=True, tag="chat"):
    """One answer, streamed, at the build's temperature. Answer: Tokens..., then ChatDone."""

    prompt: str
    build: dict[str, Value]
    max_tokens: int = 128
    top_p: float = 1.0
    seed: int = 0


class Bench(Command, frozen=True, tag="bench"):
    """Ceilings, prefill and decode rates by precision. Answer: BenchDone."""

    peers: bool = False


class Abort(Command, frozen=True, tag="abort"):
    """Stop job `job` at its next step. The job itself answers Failed(kind="aborted")."""


class Shutdown(Command, frozen=True, tag="shutdown"):
    pass


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    job: int


class Hello(Event, frozen=True, tag="hello"):
    """First line of every worker; job is 0."""

    protocol: int
    pid: int
    capabilities: Capabilities
    wait_policy: str


class Loaded(Event, frozen=True, tag="loaded"):
    """`drafters` are what can draft for the model beside itself."""

    model: ModelConfig
    name: str
    digest: str
    source: str
    seconds: float
    drafters: Drafters = NO_OTHERS


class Ready(Event, frozen=True, tag="ready"):
    config: EngineConfig
    reasons: dict[str, str]


class Calibrated(Event, frozen=True, tag="calibrated"):
    """`restart` is true where the worker must start again to take the calibrated wait policy."""

    profile: MachineProfile
    restart: bool


class Progress(Event, frozen=True, tag="progress"):
    """`phase` names interface text: loading, calibrating, warmup, pairs, quality, ...

    `order` is the ABBA run now on the clock ("A" or "B"), "" outside pairs.
    """

    phase: str
    done: int
    total: int
    order: str = ""
    seconds_left: float | None = None
    detail: str = ""


class Step(Event, frozen=True, tag="step"):
    """What the engine is doing, at most 2 a second while a run is timed.

    `batch` requests run together; `position` is the step's number in its phase, or in a served load
    the requests that have finished. `seconds_per_token` are the rates measured so far in this
    trial, by phase, of this build.
    """

    phase: Literal["prefill", "decode"]
    build: Literal["candidate", "reference"]
    batch: int
    position: int
    seconds_per_token: dict[str, float] = {}


class Account(Event, frozen=True, tag="account"):
    """The engine's memory account now, at most 2 a second while a run is timed.

    `flood` is there where the budget has just broken.
    """

    build: Literal["candidate", "reference"]
    ledger: Ledger
    flood: Flood | None = None


class Pages(Event, frozen=True, tag="pages"):
    """What each part of the cache holds now, at most 2 a second while a run is timed.

    `running`, `waiting` and `finished` count requests; `preemptions` and `hit_tokens` (found in
    the prefix cache) count since the load began.
    """

    build: Literal["candidate", "reference"]
    pages: PageMap
    running: int
    waiting: int
    finished: int
    preemptions: int = 0
    hit_tokens: int = 0


class Pressed(Event, frozen=True, tag="pressed"):
    """One layer's matrix has been quantised, at most 20 a second: `done` of `total` are."""

    build: Literal["candidate", "reference"]
    done: int
    total: int
    error: LayerError
    histogram: Histogram | None = None


class Tokens(Event, frozen=True, tag="tokens"):
    """Whole characters only; `index` counts tokens of the answer so far."""

    text: str
    index: int


class TrialDone(Event, frozen=True, tag="trial_done"):
    result: TrialResult


class ChatDone(Event, frozen=True, tag="chat_done"):
    text: str
    prompt_tokens: int
    output_tokens: int
    ttft: float
    tpot: float | None
    memory_bytes: int
    kernel_path: dict[str, str]
    finish: Literal["stop", "length"]


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the bench. `share` is of the ceiling that binds it (0 to 1)."""

    name: str
    precision: str
    batch: int
    tokens: int
    seconds: float
    tokens_per_second: float
    bound_by: str
    share: float
    ratio_to_peer: float | None = None
    peer: str = ""


class BenchDone(Event, frozen=True, tag="bench_done"):
    profile: MachineProfile
    rates: tuple[Rate, ...]
    kernel_path: dict[str, str]


class Failed(Event, frozen=True, tag="failed"):
    """kinds: input (what the player asked cannot be), model, aborted, memory, internal."""

    kind: Literal["input", "model", "aborted", "memory", "internal"]
    message: str
    detail: str = ""


AnyCommand = Load | Calibrate | Configure | RunTrial | Chat | Bench | Abort | Shutdown
AnyEvent = (
    Hello
    | Loaded
    | Ready
    | Calibrated
    | Progress
    | Step
    | Account
    | Pages
    | Pressed
    | Tokens
    | TrialDone
    | ChatDone
    | BenchDone
    | Failed
)

_encoder = msgspec.json.Encoder()
_commands = msgspec.json.Decoder(AnyCommand)
_events = msgspec.json.Decoder(AnyEvent)


def encode(message: Command | Event) -> bytes:
    """One line, newline included; JSON escapes newlines inside strings."""
    return _encoder.encode(message) + b"\n"


def decode_command(line: bytes) -> AnyCommand:
    """Raises msgspec.DecodeError or msgspec.ValidationError on anything else."""
    return _commands.decode(line)


def decode_event(line: bytes) -> AnyEvent:
    """Raises msgspec.DecodeError or msgspec.ValidationError on anything else."""
    return _events.decode(line)
