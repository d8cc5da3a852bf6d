"""Clients of stand-in workers, and what tests ask of the processes behind them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from engine.client import Limits, WorkerClient
from engine.messages import (
    AnyEvent,
    Chat,
)

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in_worker.py")))
LIMITS = Limits(hello=20.0, silence=10.0, abort=0.3, term=0.3, shutdown=1.0, line_bytes=200_000)

MakeClient = Callable[..., WorkerClient]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
