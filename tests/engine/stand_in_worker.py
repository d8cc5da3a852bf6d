"""A real worker process with stand-in handlers: the protocol without torch and without a model.

Run as a script by the tests of the worker and of the client. What a Chat's prompt says, happens.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import msgspec

from engine.capabilities import Capabilities
from engine.config import EngineConfig
from engine.domains import KnobError
from engine.machine import Ceilings, MachineProfile, current_wait_policy
from engine.messages import (
    PROTOCOL,
    Calibrate,
    Calibrated,
    Chat,
    ChatDone,
    Configure,
    Event,
    Hello,
    Load,
    Loaded,
    Progress,
    Ready,
    Tokens,
    encode,
)
from engine.model.config import ModelConfig
from engine.serve.jobs import Desk, Prepared
from engine.worker import run_worker

CAPABILITIES = Capabilities(
    device="cpu",
    device_name="stand-in",
    physical_cores=2,
    logical_cores=2,
    memory_bytes=2**30,
    instruction_set="none",
    torch_version="0",
    python_version="3",
    platform="test",
    precisions={"float32": ""},
    linear_forms=("plain",),
)
MODEL = ModelConfig(
    family="llama",
    layers=1,
    hidden=8,
    heads=1,
    kv_heads=1,
    head_dim=8,
    intermediate=16,
    vocabulary=32,
    context=64,
    rope_base=1e4,
    norm_eps=1e-5,
    tied_head=True,
)
PROFILE = MachineProfile(
    version=1,
    fingerprint=CAPABILITIES.fingerprint,
    measured_at="2025-01-01T00:00:00Z",
    threads=2,
    wait_policy="passive",
    ceilings=Ceilings(1e9, {"float32": 1e9}, 1e-6),
    noise=0.01,
)
RAW = {
    "garbage": b"{this is no event\n",
    "wrong job": encode(Progress(job=999, phase="warmup", done=0, total=1)),
    "wrong answer": encode(Ready(job=1, config=EngineConfig(), reasons={})),
    "huge": b'{"type": "tokens", "text": "' + b"x" * 300_000 + b'"}\n',
}


class StandIn:
    def __init__(self) -> None:
        self.loaded = ""
        self.events = os.dup(1)  # before the worker points fd 1 at its log

    def load(self, command: Load, desk: Desk) -> Event:
        self.loaded = command.model
        return Loaded(command.job, MODEL, command.model, "digest", "here", 0.0)

    def calibrate(self, command: Calibrate, desk: Desk) -> Event:
        return Calibrated(
            command.job, PROFILE, restart=current_wait_policy() != PROFILE.wait_policy
        )

    def configure(self, command: Configure, desk: Desk) -> Event:
        raise KnobError("no knob is named 'bacth'; \x1b[31mnearest: schedule.batch")

    def chat(self, command: Chat, desk: Desk) -> Event:
        what, _, rest = command.prompt.partition(":")
        if what == "loaded":
            rest = self.loaded
        elif what == "policy":
            rest = current_wait_policy()
        elif what == "pid":
            rest = str(os.getpid())
        elif what == "print":
            print("python says hello")
            os.write(1, b"a native print\n")
            os.write(2, b"a native complaint\n")
        elif what == "stream":
            for index in range(int(rest)):
                desk.emit(Tokens(command.job, f"{index},", index + 1))
        elif what == "progress":
            for index in range(int(rest)):
                desk.emit(Progress(command.job, "pairs", index + 1, int(rest)))
        elif what == "until aborted":
            desk.emit(Progress(command.job, "pairs", 0, 1))
            while True:
                desk.check()
                time.sleep(0.005)
        elif what == "deaf":
            desk.emit(Progress(command.job, "pairs", 0, 1))
            time.sleep(60)
        elif what == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif what == "kill":
            print("last words", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "exit":
            os._exit(3)
        elif what == "raw":
            os.write(self.events, RAW[rest])
            time.sleep(60)
        elif what == "raise":
            raise {"memory": MemoryError, "internal": ZeroDivisionError}[rest]("\x1b[2Jboom")
        return ChatDone(command.job, rest, 1, 1, 0.0, None, 0, {}, "stop")

    def prepare(self) -> Prepared:
        hello = Hello(0, PROTOCOL, os.getpid(), CAPABILITIES, current_wait_policy())
        if "--old" in sys.argv:
            hello = msgspec.structs.replace(hello, protocol=PROTOCOL + 1)
        if "--mute" in sys.argv:
            time.sleep(60)
        if "--broken" in sys.argv:
            raise RuntimeError("torch is not \x1b[1minstalled")
        return hello, lambda: {
            Load: self.load,
            Calibrate: self.calibrate,
            Configure: self.configure,
            Chat: self.chat,
        }


if __name__ == "__main__":
    if "--greeting" in sys.argv:
        os.write(1, b"Welcome to the gpu box\n")
    run_worker(StandIn().prepare)
