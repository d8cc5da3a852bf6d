"""`latency-wall worker`: become the engine process.

The command line never imports the engine's torch side: this process is replaced by it.
"""

from __future__ import annotations

import os
import sys

import click


@click.command("worker")
def command() -> None:
    """The engine process: commands on stdin, events on stdout (JSON Lines)."""
    os.execv(sys.executable, [sys.executable, "-m", "engine.worker"])
