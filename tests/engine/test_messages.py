"""Every message is one line of JSON that comes back as it went, and nothing else is accepted."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.capabilities import Capabilities
from engine.config import EngineConfig
from engine.machine import Ceilings, MachineProfile
from engine.messages import (
    Abort,
    Account,
    AnyCommand,
    AnyEvent,
    Bench,
    BenchDone,
    Calibrate,
    Calibrated,
    Chat,
    ChatDone,
    Configure,
    Failed,
    Hello,
    Load,
    Loaded,
    Pages,
    Pressed,
    Progress,
    Rate,
    Ready,
    RunTrial,
    Shutdown,
    Step,
    Tokens,
    TrialDone,
    decode_command,
    decode_event,
    encode,
)
from engine.model.config import ModelConfig
from engine.page_map import PageMap
from engine.quality_report import Quality
from engine.quantised import Histogram, LayerError
from engine.trial import (
    Bound,
    Environment,
    Fault,
    Flood,
    Ledger,
    LoadPair,
    LoadSample,
    MemoryAccount,
    Pair,
    PhaseWork,
    RequestSample,
    RunSample,
    TrialResult,
    TrialSpec,
    Work,
)

CAPABILITIES = Capabilities(
    "cpu", "Box", 2, 4, 2**33, "AVX2", "2.13.0", "3.11.7", "Linux", {"float16": "no"}, ("plain",)
)
MODEL = ModelConfig("qwen3", 2, 64, 4, 2, 32, 128, 1000, 4096, 1e6, 1e-6, False, qk_norm=True)
PROFILE = MachineProfile(
    1, "a | b", "2025-11-29", 2, "active", Ceilings(2e10, {"float32": 4e11}, 5e-6), 0.01
)
SPEC = TrialSpec(
    "pendulum",
    "paired",
    {"schedule.batch": 8, "run.precision": "bfloat16"},
    {},
    7,
    bounds=(Bound("tpot_ratio", "<=", 1.6),),
)
SAMPLE = RunSample(2, 8, 3, (0.1, 0.2), 0.2, (0.03, 0.031), 0.001, 0.262, "ab12")
WORK = PhaseWork("float32", Work(1e9, 2e9, 300), Work(5e8, 3e8, 300))
MEMORY = MemoryAccount({"weights": 100, "kv": 10}, {"weights": 101, "kv": 10}, 10**9)
RESULT = TrialResult(
    spec=SPEC,
    config=EngineConfig(),
    reference_config=EngineConfig(),
    reasons={"run.threads": "2"},
    pairs=(Pair("AB", SAMPLE, SAMPLE), Pair("BA", SAMPLE, SAMPLE)),
    singles=(),
    warmup_runs=3,
    load_seconds=1.5,
    candidate_work=WORK,
    reference_work=WORK,
    memory=MEMORY,
    reference_memory=MEMORY,
    quality=Quality(0.01, 0.97, 1.02, 2048, "cd34"),
    kernel_path={"linear": "packed float32"},
    reference_kernel_path={"linear": "packed float32"},
    prefix_hit_rate=0.0,
    ceilings=PROFILE.ceilings,
    noise=0.01,
    faults=(Fault("noise", {"cv": "0.3"}),),
    environment=Environment("a", "Linux", "3.11", "2.13", 2, "active", False, "d", "m", "2025"),
)
LEDGER = Ledger(10**6, {"weights": 5 * 10**5, "kv": 4 * 10**5}, 2 * 10**5, 1000)
COMMANDS: tuple[AnyCommand, ...] = (
    Load(1, "some model"),
    Calibrate(2, force=True),
    Configure(3, {"schedule.batch": 8, "run.precision": "bfloat16"}),
    RunTrial(4, SPEC),
    Chat(5, "line\nbreak \u2028 \x1b 二 🙂", {"sampling.temperature": 0.5}),
    Bench(6, peers=True),
    Abort(7),
    Shutdown(0),
)
EVENTS: tuple[AnyEvent, ...] = (
    Hello(0, 1, 42, CAPABILITIES, "passive"),
    Loaded(1, MODEL, "m", "digest", "/a/b", 0.5),
    Ready(2, EngineConfig(), {"run.threads": "2"}),
    Calibrated(3, PROFILE, restart=True),
    Progress(4, "pairs", 3, 8, "A", 12.5, "detail"),
    Step(5, "decode", "candidate", 8, 140, {"decode": 0.03}),
    Account(11, "candidate", LEDGER, Flood(LEDGER, 900, 500, 3, 4, 3)),
    Pages(12, "reference", PageMap("paged", 16, "FFtS.c", 41, 64, 1, ((2, 3),)), 2, 5, 1, 0, 96),
    Pressed(
        13,
        "candidate",
        4,
        120,
        LayerError(0, "down", 0.07),
        Histogram(0, "down", -0.5, 0.5, (1, 9, 1), (0, 11, 0)),
    ),
    Tokens(6, "a\nb", 3),
    TrialDone(7, RESULT),
    ChatDone(8, "hi", 4, 2, 0.1, None, 10**9, {"linear": "packed"}, "stop"),
    BenchDone(9, PROFILE, (Rate("decode", "float32", 1, 1, 0.03, 33.0, "bandwidth", 0.8),), {}),
    Failed(10, "input", "no", "detail"),
)


def test_the_samples_are_all_the_messages_there_are() -> None:
    assert {type(command) for command in COMMANDS} == set(get_args(AnyCommand))
    assert {type(event) for event in EVENTS} == set(get_args(AnyEvent))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda message: type(message).__name__)
def test_commands_come_back_as_they_went(command: AnyCommand) -> None:
    line = encode(command)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_command(line) == command
    assert json.loads(line)["job"] == command.job


@pytest.mark.parametrize("event", EVENTS, ids=lambda message: type(message).__name__)
def test_events_come_back_as_they_went(event: AnyEvent) -> None:
    line = encode(event)
    assert line.count(b"\n") == 1
    back = decode_event(line)
    assert type(back) is type(event)
    assert back == event


def test_a_served_and_flooded_result_comes_back_as_it_went() -> None:
    """`test_events_come_back` knows a paired one; these parts are of other kinds of trial."""
    request = RequestSample("chat", 20, 3, 16, 0.5, 1.0, 4.0, (1.0, 2.0), preemptions=1)
    load = LoadSample(
        (request,), 1.0, 2.0, 0.5, 3.5, 1, 2, 5, 1, 1, 20.5, 32.0, 22, 1, 2, "ab", 0.5, WORK
    )
    served = msgspec.structs.replace(
        RESULT,
        load_pairs=(LoadPair("AB", load, load),),
        ledger=LEDGER,
        flood=Flood(LEDGER, 900, 500, 3, 4, 3),
    )
    assert decode_event(encode(TrialDone(1, served))) == TrialDone(1, served)


def test_a_result_written_before_there_were_loads_can_still_be_read() -> None:
    fields = json.loads(msgspec.json.encode(RESULT))
    for new in ("load_pairs", "ledger", "flood"):
        del fields[new]
    for account in (fields["memory"], fields["reference_memory"]):
        del account["kv_tokens"]
    assert msgspec.convert(fields, TrialResult) == RESULT


def test_types_are_named_once() -> None:
    tags = [json.loads(encode(message))["type"] for message in (*COMMANDS, *EVENTS)]
    assert len(tags) == len(set(tags))


@given(st.text(), st.integers(1, 2**53))
def test_any_text_travels_in_one_line(text: str, job: int) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate is no text that UTF-8 can carry
    line = encode(Tokens(job, text, 0))
    assert line.count(b"\n") == 1
    assert decode_event(line) == Tokens(job, text, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "fly", "job": 1},
        {"type": "load"},
        {"type": "load", "job": "1"},
        {"type": "load", "job": 1, "modell": "x"},
        {"job": 1},
        {"type": "configure", "job": 1, "build": {"schedule.batch": [1]}},
        {"type": "hello", "job": 1},
        [],
        None,
    ],
)
def test_what_is_no_command_is_refused(fields: Any) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_command(json.dumps(fields).encode())


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "load", "job": 1},
        {"type": "failed", "job": 1, "kind": "bored", "message": ""},
        {"type": "tokens", "job": 1, "text": "a", "index": 1, "more": 2},
        {"type": "progress", "job": 1, "phase": "pairs"},
    ],
)
def test_what_is_no_event_is_refused(fields: Any) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_event(json.dumps(fields).encode())
