"""`latency-wall worker`: become the engine process.

The command line never imports the engine's torch side: this process is replaced by it.
"""

from __future__ import annotations

import os
import sys

import click

from game.commands.options import device_option


@click.command("worker")
@device_option
def command(device: str) -> None:
    """The engine process: commands on stdin, events on stdout (JSON Lines)."""
    # `-P`: a folder named `engine` in the current directory must not be taken for ours.
    arguments = ["-P", "-m", "engine.worker", "--device", device]
    os.execv(sys.executable, [sys.executable, *arguments])
