"""The engine process: `python -m engine.worker [--device cpu]`.

Commands come in on stdin and events go out on what was stdout, one JSON message a line
(`engine.messages`); heartbeats go out on what was stderr. Prints, of Python and of native
libraries, go to a log. The process ends when told to, and when its parent ends.

This module is the wiring; the pieces are in `engine.serve`. torch is imported only after the
streams are safe, the heart beats, and the remembered wait policy is in the environment.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Sequence
from importlib import metadata
from typing import NoReturn

from engine.machine import current_wait_policy, latest_profile, worker_environment
from engine.messages import PROTOCOL, Hello
from engine.paths import log_home, native_home
from engine.serve.jobs import Handlers, Prepare, Prepared, Worker
from engine.serve.lifeline import Heartbeat, die_with_parent, end_now
from engine.serve.streams import bound_log, take_streams

DEVICES = ("cpu",)
"""Devices this version has kernels for."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    parser = argparse.ArgumentParser(prog="engine.worker", description="The engine process.")
    parser.add_argument("--device", default="cpu", help="cpu (cuda and mps: not in this version)")
    device = parser.parse_args(arguments).device
    set_environment(device)
    run_worker(functools.partial(prepare, device))


def run_worker(prepare: Prepare) -> NoReturn:
    """Take the standard streams and serve until told to end, or until the parent ends.

    `prepare` runs once the heart beats; it returns the Hello and what makes the handlers. The
    process then ends without tearing down: torch's threads have nothing left to say.
    """
    die_with_parent()
    streams = take_streams(log_home())
    Heartbeat(streams.beats, chores=(functools.partial(bound_log, streams.log),))
    try:
        status = Worker(streams).serve(prepare)
    except KeyboardInterrupt:
        status = 130
    end_now(status)


def set_environment(device: str) -> None:
    """What native libraries read once, when they are loaded.

    The OpenMP wait policy is the one measured last on a machine with this device and torch (the
    exact fingerprint needs torch itself); one that is already set stands.
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("PYTHONSAFEPATH", "1")  # for processes this one starts: see `-P`
    profile = latest_profile(device, metadata.version("torch"))
    if profile is not None:
        for name, value in worker_environment(profile.wait_policy).items():
            os.environ.setdefault(name, value)


def prepare(device: str) -> Prepared:
    """Look at the machine (this imports torch); the bench is laid out after Hello.

    Raises ValueError for a device this version or this machine does not have.
    """
    if device not in DEVICES:
        raise ValueError(f"no kernels for device {device!r} here; this version has: cpu")
    from engine.detect import detect
    from kernels import native

    native.keep_in(native_home())
    capabilities = detect()
    hello = Hello(
        job=0,
        protocol=PROTOCOL,
        pid=os.getpid(),
        capabilities=capabilities,
        wait_policy=current_wait_policy(),
    )

    def lay_out() -> Handlers:
        from engine.serve.workbench import Workbench

        return Workbench(capabilities).handlers()

    return hello, lay_out


if __name__ == "__main__":
    main()
