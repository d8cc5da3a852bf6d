"""The client against real processes that misbehave: what dies, what is said, what is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import get_args

import pytest

from engine.client import Limits, RestartLimit, State, WorkerClient, WorkerDied, worker_command
from engine.client_conversation import DEADLINES, Conversation, describe_end
from engine.messages import (
    Abort,
    AnyCommand,
    AnyEvent,
    Calibrate,
    Calibrated,
    Chat,
    ChatDone,
    Configure,
    Failed,
    Load,
    Loaded,
    Shutdown,
    Tokens,
)

pytestmark = pytest.mark.process

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in_worker.py")))
LIMITS = Limits(hello=20.0, silence=10.0, abort=0.3, term=0.3, shutdown=1.0, line_bytes=200_000)

MakeClient = Callable[..., WorkerClient]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path))
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)


@pytest.fixture
async def make_client() -> AsyncIterator[MakeClient]:
    clients: list[WorkerClient] = []

    def make(*arguments: str, limits: Limits = LIMITS, **more: object) -> WorkerClient:
        clients.append(WorkerClient((*STAND_IN, *arguments), limits=limits, **more))
        return clients[-1]

    yield make
    for client in clients:
        await client.stop()


def chat(prompt: str) -> Callable[[int], Chat]:
    return lambda job: Chat(job, prompt, {})


async def pid_of(client: WorkerClient) -> int:
    return (await client.start()).pid


def is_running(pid: int) -> bool:
    """False for a process that is gone and for one that is only waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        if sys.platform == "linux":
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return True
        return False
    return state != "Z"


async def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    for _ in range(int(seconds / 0.02)):
        if holds():
            return True
        await asyncio.sleep(0.02)
    return holds()


async def first_event(client: WorkerClient, prompt: str) -> asyncio.Task[AnyEvent]:
    """A job that is known to have begun."""
    begun = asyncio.Event()
    task = asyncio.create_task(client.run(chat(prompt), lambda _: begun.set()))
    await asyncio.wait_for(begun.wait(), 20)
    return task


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
    with pytest.raises(WorkerDied, match="speaks protocol 2 and this program 1"):
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
