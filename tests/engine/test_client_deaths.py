"""The client against real processes that die, hang, or are told to stop: what is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import get_args

import pytest
from live_client import (
    LIMITS,
    STAND_IN,
    MakeClient,
    chat,
    eventually,
    first_event,
    is_running,
    make_client,
    own_cache,
    pid_of,
)

from engine.client import Limits, RestartLimit, State, WorkerClient, WorkerDied
from engine.client_conversation import Conversation
from engine.client_terms import DEADLINES
from engine.messages import (
    Abort,
    AnyCommand,
    Chat,
    ChatDone,
    Failed,
    Load,
    Loaded,
    Shutdown,
)

pytestmark = pytest.mark.process

__all__ = ["make_client", "own_cache"]


# Deaths


async def test_a_worker_killed_in_mid_job_costs_that_job_only(make_client: MakeClient) -> None:
    client = make_client()
    pid = await pid_of(client)
    job = await first_event(client, "until aborted")
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied) as death:
        await asyncio.wait_for(job, 10)
    assert death.value.cause == "exit"
    assert "SIGKILL" in death.value.reason
    assert client.state == "died"
    assert isinstance(await client.run(chat("hi")), ChatDone)
    assert await pid_of(client) != pid


async def test_a_worker_that_dies_while_idle_is_noticed_and_replaced(
    make_client: MakeClient,
) -> None:
    client = make_client()
    os.kill(await pid_of(client), signal.SIGKILL)
    assert await eventually(lambda: client.state == "died")
    assert client.hello is None
    assert isinstance(await client.run(chat("hi")), ChatDone)


async def test_the_log_tail_of_a_local_worker_is_in_its_death() -> None:
    talk = await Conversation.open(STAND_IN, {}, LIMITS, local=True)
    with pytest.raises(WorkerDied) as death:
        await talk.run(Chat(1, "kill", {}), None, None)
    await talk.close()
    assert death.value.log_tail.endswith("last words")


async def test_the_model_is_loaded_again_after_a_death(make_client: MakeClient) -> None:
    client = make_client()
    assert isinstance(await client.run(lambda job: Load(job, "tiny")), Loaded)
    with pytest.raises(WorkerDied):
        await client.run(chat("exit"))
    answer = await client.run(chat("loaded"))
    assert isinstance(answer, ChatDone)
    assert answer.text == "tiny"


async def test_the_fourth_restart_is_refused_calmly(make_client: MakeClient) -> None:
    client = make_client()
    for _ in range(4):
        with pytest.raises(WorkerDied) as death:
            await client.run(chat("exit"))
        assert not isinstance(death.value, RestartLimit)
    with pytest.raises(RestartLimit, match=r"ended 4 times.*Nothing was lost"):
        await client.run(chat("hi"))


async def test_restarts_long_ago_are_forgotten(make_client: MakeClient) -> None:
    client = make_client(limits=Limits(window=0.0))
    for _ in range(5):
        with pytest.raises(WorkerDied) as death:
            await client.run(chat("exit"))
        assert not isinstance(death.value, RestartLimit)


async def test_a_silent_worker_is_ended(make_client: MakeClient) -> None:
    """SIGSTOP takes its heartbeat and keeps it from hearing TERM."""
    client = make_client(limits=Limits(silence=1.3, term=0.3))
    pid = await pid_of(client)
    with pytest.raises(WorkerDied) as death:
        await asyncio.wait_for(client.run(chat("stop")), 10)
    assert death.value.cause == "silent"
    assert not is_running(pid)


async def test_a_long_call_with_a_beating_heart_is_not_ended(make_client: MakeClient) -> None:
    client = make_client(limits=Limits(silence=1.3, abort=0.1, term=0.3))
    job = await first_event(client, "deaf")
    done, _ = await asyncio.wait([job], timeout=2.0)
    assert not done
    await client.abort()
    with pytest.raises(WorkerDied):
        await job


async def test_a_job_past_its_deadline_is_ended(make_client: MakeClient) -> None:
    client = make_client()
    pid = await pid_of(client)
    with pytest.raises(WorkerDied, match=r"longer than 0\.2 s") as death:
        await client.run(chat("deaf"), deadline=0.2)
    assert death.value.cause == "deadline"
    assert not is_running(pid)


def test_every_command_that_is_answered_has_a_deadline() -> None:
    assert set(DEADLINES) == set(get_args(AnyCommand)) - {Abort, Shutdown}


# Stopping


async def test_abort_closes_a_job_in_the_middle(make_client: MakeClient) -> None:
    client = make_client()
    pid = await pid_of(client)
    job = await first_event(client, "until aborted")
    await client.abort()
    answer = await job
    assert isinstance(answer, Failed)
    assert answer.kind == "aborted"
    assert await pid_of(client) == pid


async def test_abort_is_heard_while_the_worker_still_starts() -> None:
    tasks: list[asyncio.Task[None]] = []

    def on_state(state: State) -> None:
        if state == "starting":
            tasks.append(asyncio.create_task(client.abort()))

    client = WorkerClient(STAND_IN, on_state=on_state, limits=LIMITS)
    answer = await asyncio.wait_for(client.run(chat("deaf")), 10)
    assert isinstance(answer, Failed)
    assert answer.kind == "aborted"
    assert isinstance(await client.run(chat("hi")), ChatDone)
    await client.stop()


async def test_a_job_deaf_to_abort_is_ended(make_client: MakeClient) -> None:
    client = make_client()
    pid = await pid_of(client)
    job = await first_event(client, "deaf")
    await client.abort()
    with pytest.raises(WorkerDied) as death:
        await job
    assert death.value.cause == "abort"
    assert not is_running(pid)


async def test_cancelling_a_call_stops_its_job_in_the_worker(make_client: MakeClient) -> None:
    client = make_client()
    pid = await pid_of(client)
    job = await first_event(client, "until aborted")
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert isinstance(await client.run(chat("hi")), ChatDone)
    assert await pid_of(client) == pid


async def test_cancelling_twice_leaves_a_client_that_works(make_client: MakeClient) -> None:
    client = make_client()
    job = await first_event(client, "deaf")
    job.cancel()
    await asyncio.sleep(0.05)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert isinstance(await client.run(chat("hi")), ChatDone)


async def test_stop_leaves_no_process(make_client: MakeClient) -> None:
    client = make_client()
    pid = await pid_of(client)
    await client.stop()
    assert not is_running(pid)
    assert client.state == "absent"


async def test_stop_in_mid_job_tells_the_job(make_client: MakeClient) -> None:
    client = make_client(limits=Limits(shutdown=0.2, term=0.2))
    pid = await pid_of(client)
    job = await first_event(client, "deaf")
    await client.stop()
    with pytest.raises(WorkerDied) as death:
        await job
    assert death.value.cause == "stopped"
    assert client.state == "absent"
    assert not is_running(pid)


async def test_stop_while_starting(make_client: MakeClient) -> None:
    client = make_client("--mute")
    starting = asyncio.create_task(client.start())
    await asyncio.sleep(0.2)
    await asyncio.wait_for(client.stop(), 10)
    with pytest.raises(WorkerDied) as death:
        await starting
    assert death.value.cause == "stopped"


async def test_a_stopped_client_starts_again_and_owes_nothing(make_client: MakeClient) -> None:
    client = make_client()
    for _ in range(5):
        await client.start()
        await client.stop()
    assert isinstance(await client.run(chat("hi")), ChatDone)
