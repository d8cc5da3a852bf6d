"""The worker process spoken to directly, byte by byte, without the client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.messages import (
    PROTOCOL,
    Abort,
    Chat,
    Event,
    Failed,
    Hello,
    Progress,
    Shutdown,
    Tokens,
    decode_event,
    encode,
)
from engine.serve.streams import LOGS_KEPT

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in_worker.py")))


class Speaker:
    """A worker on plain pipes. Every read has a deadline: a hang fails, it does not hang."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            (*STAND_IN, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._guard = threading.Timer(30, self.process.kill)
        self._guard.start()

    def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def hear(self) -> Event:
        assert self.process.stdout is not None
        return decode_event(self.process.stdout.readline())

    def hear_until(self, kind: type[Event]) -> Any:
        while not isinstance(event := self.hear(), kind):
            pass
        return event

    def close(self) -> None:
        self._guard.cancel()
        self.process.kill()
        self.process.communicate()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path))


@pytest.fixture
def worker() -> Iterator[Speaker]:
    speaker = Speaker()
    yield speaker
    speaker.close()


def begin(worker: Speaker, prompt: str, job: int = 1) -> None:
    """A job that is known to run."""
    worker.say(encode(Chat(job, prompt, {})))
    worker.hear_until(Progress)


process = pytest.mark.process


@process
def test_hello_is_the_first_line_and_names_the_process(worker: Speaker) -> None:
    hello = worker.hear()
    assert isinstance(hello, Hello)
    assert (hello.job, hello.protocol, hello.pid) == (0, PROTOCOL, worker.process.pid)


@process
@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b'{"type": "fly", "job": 1}\n',
        b'{"type": "chat", "job": 1}\n',
        b'{"type": "load", "job": 1, "weights": "mine"}\n',
        b'{"type": "configure", "job": 1, "build": {"schedule.batch": [8]}}\n',
        b'{"type": "load", "job": 0}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\x00\n",
        b'"' + b"x" * (17 * 1024 * 1024) + b'"\n',
    ],
    ids=["text", "unknown", "missing", "extra", "type", "job 0", "nested", "bytes", "huge"],
)
def test_a_malformed_command_is_refused_and_the_worker_goes_on(
    worker: Speaker, line: bytes
) -> None:
    worker.hear()
    worker.say(line)
    refused = worker.hear()
    assert isinstance(refused, Failed)
    assert (refused.job, refused.kind) == (0, "input")
    assert len(refused.message) <= 600
    worker.say(encode(Chat(1, "pid", {})))
    assert worker.hear().job == 1


@process
def test_a_failure_is_cleaned_and_its_traceback_goes_to_the_log(
    worker: Speaker, tmp_path: Path
) -> None:
    worker.hear()
    worker.say(encode(Chat(1, "raise:internal", {})))
    failed = worker.hear()
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.message, failed.detail) == ("internal", "boom", "ZeroDivisionError")
    worker.say(encode(Shutdown(0)))
    worker.process.wait(10)
    log = (tmp_path / "logs" / f"worker-{worker.process.pid}.log").read_text()
    assert "Traceback" in log
    assert "ZeroDivisionError" in log


@process
def test_abort_ends_a_running_job_and_a_waiting_one_but_no_other(worker: Speaker) -> None:
    begin(worker, "until aborted", job=1)
    worker.say(encode(Chat(2, "pid", {})) + encode(Chat(3, "pid", {})))
    worker.say(encode(Abort(2)) + encode(Abort(7)) + encode(Abort(1)))
    answers = [worker.hear() for _ in range(3)]
    assert [event.job for event in answers] == [1, 2, 3]
    assert [getattr(event, "kind", "") for event in answers] == ["aborted", "aborted", ""]


@process
def test_an_abort_that_comes_late_does_not_hit_the_next_job(worker: Speaker) -> None:
    worker.hear()
    worker.say(encode(Chat(1, "pid", {})))
    assert worker.hear().job == 1
    worker.say(encode(Abort(1)) + encode(Abort(2)) + encode(Chat(2, "pid", {})))
    answer = worker.hear()
    assert answer.job == 2
    assert not isinstance(answer, Failed)


@process
def test_shutdown_stops_the_job_and_ends_with_status_0(worker: Speaker) -> None:
    begin(worker, "until aborted")
    worker.say(encode(Shutdown(0)))
    assert worker.hear_until(Failed).kind == "aborted"
    assert worker.process.wait(10) == 0


@process
def test_the_end_of_stdin_ends_the_worker_in_mid_job(worker: Speaker) -> None:
    """`deaf` sleeps in one call on the main thread; this parent stays alive."""
    begin(worker, "deaf")
    assert worker.process.stdin is not None
    worker.process.stdin.close()
    worker.process.stdin = None
    assert worker.process.wait(5) == 0


HOLDER = """
import os, subprocess, sys
worker = subprocess.Popen(sys.argv[1:], stdin=0, stdout=1, stderr=2, start_new_session=True)
os.write(1, b"%d\\n" % worker.pid)
worker.wait()
"""


@process
def test_the_parents_death_ends_the_worker_though_its_pipes_stay_open() -> None:
    """The pipes belong to this test, the worker's parent is a process in between."""
    holder = subprocess.Popen(
        (sys.executable, "-c", HOLDER, *STAND_IN),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    pid = int(holder.stdout.readline())
    guard = threading.Timer(15, os.kill, (pid, signal.SIGKILL))
    guard.start()
    try:
        assert json.loads(holder.stdout.readline())["type"] == "hello"
        holder.kill()
        assert holder.stdout.read() == b""  # the end of the stream: no process holds it any more
        assert guard.is_alive(), "the worker outlived its parent"
    finally:
        guard.cancel()
        holder.communicate()


@process
def test_a_closed_event_pipe_ends_the_worker(worker: Speaker) -> None:
    begin(worker, "deaf")
    assert worker.process.stdout is not None
    worker.process.stdout.close()
    worker.process.stdout = None
    worker.say(b"nonsense that asks for an answer\n")
    assert worker.process.wait(5) == 0


@process
def test_the_heart_beats_while_the_main_thread_is_in_one_long_call(worker: Speaker) -> None:
    begin(worker, "deaf")
    assert worker.process.stderr is not None
    beats = [json.loads(worker.process.stderr.readline()) for _ in range(3)]
    assert beats == [{"beat": 1}, {"beat": 2}, {"beat": 3}]


@process
def test_an_interface_that_does_not_read_neither_stops_the_job_nor_loses_text(
    worker: Speaker,
) -> None:
    """200,000 events are far more than a pipe holds; the heart goes on meanwhile."""
    worker.hear()
    count = 200_000
    worker.say(encode(Chat(1, f"stream:{count}", {})) + encode(Chat(2, "pid", {})))
    time.sleep(0.5)
    assert worker.process.poll() is None
    text = ""
    while isinstance(event := worker.hear(), Tokens):
        text += event.text
    assert event.job == 1
    assert text == "".join(f"{index}," for index in range(count))
    assert worker.hear().job == 2


@process
def test_terminate_ends_a_busy_worker(worker: Speaker) -> None:
    begin(worker, "deaf")
    worker.process.terminate()
    assert worker.process.wait(5) == -signal.SIGTERM


@process
def test_only_the_newest_logs_are_kept(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in range(20):
        old = logs / f"worker-{10**8 + number}.log"
        old.write_text("old")
        os.utime(old, (number, number))
    speaker = Speaker()
    speaker.hear()
    speaker.close()
    kept = sorted(int(path.stem.removeprefix("worker-")) for path in logs.glob("*.log"))
    newest = [10**8 + number for number in range(20 - LOGS_KEPT + 1, 20)]
    assert kept == [speaker.process.pid, *newest]


@process
def test_a_worker_without_a_place_for_its_log_still_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LATENCY_WALL_CACHE", str(tmp_path / "file" / "cache"))
    speaker = Speaker()
    speaker.hear()
    speaker.say(encode(Chat(1, "print", {})))
    assert speaker.hear().job == 1
    speaker.close()
