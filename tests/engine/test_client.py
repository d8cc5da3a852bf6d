"""The client and its worker: jobs, streams, versions, environments, command lines."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from live_client import (
    LIMITS,
    STAND_IN,
    MakeClient,
    chat,
    eventually,
    is_running,
    make_client,
    own_cache,
    pid_of,
)

from engine.client import Limits, State, WorkerClient, WorkerDied, worker_command
from engine.client_terms import describe_end
from engine.messages import (
    PROTOCOL,
    AnyEvent,
    Calibrate,
    Calibrated,
    ChatDone,
    Configure,
    Failed,
    Load,
    Tokens,
)

pytestmark = pytest.mark.process

__all__ = ["make_client", "own_cache"]


# Jobs


async def test_a_job_returns_its_answer_and_streams_its_events(make_client: MakeClient) -> None:
    client = make_client()
    events: list[AnyEvent] = []
    answer = await client.run(chat("stream:2000"), events.append)
    assert isinstance(answer, ChatDone)
    assert all(isinstance(event, Tokens) for event in events)
    said = "".join(event.text for event in events if isinstance(event, Tokens))
    assert said == "".join(f"{index}," for index in range(2000))


async def test_a_failure_is_an_answer_and_the_worker_goes_on(make_client: MakeClient) -> None:
    client = make_client()
    pid = await pid_of(client)
    answer = await client.run(lambda job: Configure(job, {"bacth": 8}))
    assert isinstance(answer, Failed)
    assert answer.kind == "input"
    assert answer.message == "no knob is named 'bacth'; nearest: schedule.batch"
    assert await pid_of(client) == pid


async def test_jobs_wait_for_one_another(make_client: MakeClient) -> None:
    client = make_client()
    order: list[int] = []

    async def job(number: int) -> None:
        await client.run(chat("progress:50"), lambda event: order.append(number))

    await asyncio.gather(*(job(number) for number in range(4)))
    assert order == sorted(order)
    assert set(order) == {0, 1, 2, 3}


async def test_states_are_told_in_order(make_client: MakeClient) -> None:
    states: list[State] = []
    client = make_client(on_state=states.append)
    await client.start()
    await client.run(chat("hi"))
    await client.stop()
    assert states == ["starting", "idle", "busy", "idle", "absent"]


async def test_native_prints_do_not_break_the_stream(
    make_client: MakeClient, tmp_path: Path
) -> None:
    client = make_client()
    pid = await pid_of(client)
    assert isinstance(await client.run(chat("print")), ChatDone)
    log = (tmp_path / "logs" / f"worker-{pid}.log").read_text()
    assert "python says hello" in log
    assert "a native print" in log
    assert "a native complaint" in log


async def test_the_greeting_of_a_login_shell_is_passed_over(make_client: MakeClient) -> None:
    client = make_client("--greeting")
    assert isinstance(await client.run(chat("hi")), ChatDone)


async def test_an_error_in_the_callback_stops_the_job_and_reaches_the_caller(
    make_client: MakeClient,
) -> None:
    client = make_client()
    pid = await pid_of(client)

    def fail(event: AnyEvent) -> None:
        raise LookupError("the caller's own fault")

    with pytest.raises(LookupError, match="own fault"):
        await client.run(chat("until aborted"), fail)
    assert isinstance(await client.run(chat("hi")), ChatDone)
    assert await pid_of(client) == pid


# The protocol broken


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("garbage", "no event"),
        ("wrong job", "job 999"),
        ("wrong answer", "does not answer"),
        ("huge", "longer than any message"),
    ],
)
async def test_a_broken_protocol_ends_the_worker(
    make_client: MakeClient, fault: str, told: str
) -> None:
    client = make_client()
    pid = await pid_of(client)
    with pytest.raises(WorkerDied, match=told) as death:
        await client.run(chat(f"raw:{fault}"))
    assert death.value.cause == "protocol"
    assert not is_running(pid)
    assert isinstance(await client.run(chat("hi")), ChatDone)


async def test_another_protocol_version_is_named(make_client: MakeClient) -> None:
    with pytest.raises(
        WorkerDied, match=f"speaks protocol {PROTOCOL + 1} and this program {PROTOCOL}"
    ):
        await make_client("--old").start()


async def test_a_worker_that_never_says_hello(make_client: MakeClient) -> None:
    with pytest.raises(WorkerDied, match="said nothing") as death:
        await make_client("--mute", limits=Limits(hello=0.5, term=0.2)).start()
    assert death.value.cause == "start"


async def test_a_worker_that_cannot_prepare_says_why(make_client: MakeClient) -> None:
    with pytest.raises(WorkerDied, match="torch is not installed"):
        await make_client("--broken").start()


async def test_a_command_that_is_not_there() -> None:
    client = WorkerClient(("/no/such/program",))
    with pytest.raises(WorkerDied, match="cannot start /no/such/program"):
        await client.start()
    assert client.state == "died"


async def test_a_command_that_only_complains_is_quoted() -> None:
    script = (
        "import sys; sys.stderr.write('\\x1b[31mHost key verification failed.\\n'); sys.exit(7)"
    )
    client = WorkerClient((sys.executable, "-c", script), limits=LIMITS)
    with pytest.raises(WorkerDied, match="status 7") as death:
        await client.start()
    assert death.value.log_tail == "Host key verification failed."


# The environment


async def test_a_calibrated_wait_policy_is_taken_by_a_new_worker(make_client: MakeClient) -> None:
    client = make_client()
    before = await pid_of(client)
    await client.run(lambda job: Load(job, "tiny"))
    answer = await client.run(Calibrate)
    assert isinstance(answer, Calibrated)
    assert not answer.restart
    hello = await client.start()
    assert hello.pid != before
    assert hello.wait_policy == "passive"
    loaded = await client.run(chat("loaded"))
    assert isinstance(loaded, ChatDone)
    assert loaded.text == "tiny"
    assert isinstance(await client.run(Calibrate), Calibrated)
    assert await pid_of(client) == hello.pid


async def test_ctrl_c_in_the_terminal_does_not_reach_the_worker(make_client: MakeClient) -> None:
    pid = await pid_of(make_client())
    assert os.getsid(pid) == pid != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)


PARENT = """
import asyncio, sys
from engine.client import WorkerClient
from engine.messages import Chat

async def main():
    client = WorkerClient(sys.argv[1:])
    print((await client.start()).pid, flush=True)
    await client.run(lambda job: Chat(job, "deaf", {}), lambda event: print("begun", flush=True))

asyncio.run(main())
"""


async def test_killing_the_interface_leaves_no_worker() -> None:
    """In mid-job, and with the worker's main thread asleep in a call it cannot leave."""
    parent = subprocess.Popen(
        (sys.executable, "-c", PARENT, *STAND_IN), stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    try:
        pid = int(parent.stdout.readline())
        assert parent.stdout.readline() == "begun\n"
        assert is_running(pid)
        parent.kill()
        parent.wait()
        assert await eventually(lambda: not is_running(pid), 5.0)
    finally:
        parent.kill()
        parent.stdout.close()


async def test_a_parent_that_was_already_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker compares the parent it was promised with the one it has."""
    promised = {"LATENCY_WALL_PARENT": "1" if os.getpid() != 1 else "2"}
    client = WorkerClient(STAND_IN, environment=promised, limits=LIMITS)
    with pytest.raises(WorkerDied):
        await client.start()


# The command line


def test_a_worker_option_is_split_and_not_run_by_a_shell() -> None:
    assert worker_command(None) is None
    assert worker_command("ssh gpu-box latency-wall worker") == (
        "ssh",
        "gpu-box",
        "latency-wall",
        "worker",
    )
    assert worker_command("sh 'a b' $(reboot)") == ("sh", "a b", "$(reboot)")


@pytest.mark.parametrize("text", ["", "   ", "ssh 'box"])
def test_a_worker_option_that_is_no_command(text: str) -> None:
    with pytest.raises(ValueError, match="--worker"):
        worker_command(text)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (0, "by itself (status 0)"),
        (3, "status 3"),
        (-9, "SIGKILL"),
        (137, "SIGKILL"),
        (-11, "SEGV"),
    ],
)
def test_ends_are_put_into_words(status: int, said: str) -> None:
    assert said in describe_end(status)
