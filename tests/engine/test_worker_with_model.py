"""The whole way once: client, worker process, default model, and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.client import WorkerClient
from engine.domains import Value
from engine.machine import Ceilings, MachineProfile, save_profile
from engine.messages import (
    Account,
    AnyEvent,
    Chat,
    ChatDone,
    Configure,
    Failed,
    Load,
    Loaded,
    Ready,
    RunTrial,
    Tokens,
    TrialDone,
)
from engine.trial import TrialSpec

pytestmark = [pytest.mark.process, pytest.mark.model]


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorkerClient]:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path))
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    client = WorkerClient()
    yield client
    await client.stop()


async def test_a_question_is_answered_by_the_default_model(
    client: WorkerClient, default_model_path: Path
) -> None:
    hello = await client.start()
    assert hello.capabilities.device == "cpu"

    early = await client.run(lambda job: Chat(job, "hello", {}))
    assert isinstance(early, Failed)
    assert (early.kind, early.message) == ("input", "no model is loaded; load one first")

    lost = await client.run(lambda job: Load(job, "/no/such/model.gguf"))
    assert isinstance(lost, Failed)
    assert lost.kind == "model"
    assert "/no/such/model.gguf" in lost.message

    loaded = await client.run(lambda job: Load(job, str(default_model_path)))
    assert isinstance(loaded, Loaded)
    assert (loaded.model.layers, loaded.model.hidden, loaded.model.vocabulary) == (30, 576, 49152)

    wrong = await client.run(lambda job: Configure(job, {"bacth": 8}))
    assert isinstance(wrong, Failed)
    assert wrong.kind == "input"
    assert "nearest: schedule.batch" in wrong.message

    ready = await client.run(lambda job: Configure(job, {"batch": 8}))
    assert isinstance(ready, Ready)
    assert ready.config.schedule.batch == 8

    events: list[AnyEvent] = []
    answer = await client.run(
        lambda job: Chat(job, "What is the capital of France?", {"threads": 1}, max_tokens=16),
        events.append,
    )
    assert isinstance(answer, ChatDone)
    assert "Paris" in answer.text
    assert answer.finish == "stop"
    assert "".join(event.text for event in events if isinstance(event, Tokens)) == answer.text
    assert answer.ttft > 0
    assert answer.tpot is not None and answer.tpot > 0
    assert answer.memory_bytes > 4 * loaded.model.matrix_elements
    assert {"linear", "attention"} <= answer.kernel_path.keys()


VESSEL: dict[str, Value] = {
    "workload.prompt": 48,
    "workload.output": 4,
    "schedule.batch": 32,
    "run.precision": "bfloat16",
    "run.threads": 1,
    "memory.overflow": "break",
}
WITH_A_PACKED_HEAD, WITHOUT = 66, 55
"""Percent of 538 MB: what the weights and a pass leave holds a few requests, never 32. A head that
is packed takes 57 MB more."""


async def test_a_flooded_trial_is_an_answer_and_the_same_worker_goes_on(
    client: WorkerClient, default_model_path: Path
) -> None:
    hello = await client.start()
    ceilings = Ceilings(1e12, {"float32": 1e15, "bfloat16": 1e15}, 1e-9)
    fingerprint = hello.capabilities.fingerprint
    save_profile(MachineProfile(1, fingerprint, "", 1, "passive", ceilings, 0.01))
    await client.run(lambda job: Load(job, str(default_model_path)))

    packs = hello.capabilities.packs("bfloat16")
    vessel = VESSEL | {"memory.budget": WITH_A_PACKED_HEAD if packs else WITHOUT}
    spec = TrialSpec(
        "abyss", "hold", vessel, vessel | {"schedule.batch": 1}, 3, repeats=2, quality=False
    )
    for _ in range(2):
        events: list[AnyEvent] = []
        done = await client.run(lambda job: RunTrial(job, spec), events.append)
        assert isinstance(done, TrialDone)
        flood = done.result.flood
        assert flood is not None and done.result.faults == () and done.result.singles == ()
        assert 1 <= flood.fits < 32 and flood.asked_bytes > flood.free_bytes
        assert flood.ledger.live_tokens >= flood.running * 48
        assert flood.ledger.budget is not None
        assert flood.ledger.reserved_bytes <= flood.ledger.budget
        told = [event for event in events if isinstance(event, Account) and event.flood]
        assert [event.flood for event in told] == [flood]

    cache: dict[str, Value] = {"cache.layout": "paged", "block_size": 32, "cache.bits": 8}
    answer = await client.run(
        lambda job: Chat(job, "What is the capital of France?", vessel | cache, max_tokens=16)
    )
    assert isinstance(answer, ChatDone) and "Paris" in answer.text
    assert answer.memory_bytes <= flood.ledger.budget

    poor = await client.run(
        lambda job: Chat(job, "hello", VESSEL | {"memory.budget": 20}, max_tokens=16)
    )
    assert isinstance(poor, Failed) and poor.kind == "memory"
    assert "the vessel holds" in poor.message
    assert (await client.start()).pid == hello.pid
