"""The whole way once: client, worker process, default model, and back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.client import WorkerClient
from engine.messages import AnyEvent, Chat, ChatDone, Configure, Failed, Load, Loaded, Ready, Tokens

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
