"""What a user is told when a command could not be done, and with which exit status."""

from __future__ import annotations

import os
import time
import traceback

import click

from engine.clean import clean
from engine.messages import Failed
from engine.paths import log_home

BAD_INPUT, INVALID, INTERNAL, INTERRUPTED = 2, 4, 5, 130


def explain(error: Exception) -> int:
    """Print what was wrong and return the exit status.

    Errors that are a `ValueError` (a knob, a stage, a model, a save, a setting) carry a sentence
    for the user. Anything else is a fault of the program: its traceback goes to a file.
    """
    from engine.client import WorkerDied
    from game.outcome import EngineUnavailable

    if isinstance(error, WorkerDied | EngineUnavailable):
        click.echo(clean(f"The engine process stopped: {error}"), err=True)
        return INVALID
    if isinstance(error, ValueError):
        click.echo(clean(str(error)), err=True)
        return BAD_INPUT
    click.echo(clean(f"Something broke inside: {type(error).__name__}: {error}", 500), err=True)
    where = keep_traceback(error)
    if where:
        click.echo(f"The details are in {where}", err=True)
    return INTERNAL


def keep_traceback(error: Exception) -> str | None:
    """Write the traceback to a file of its own and return its path; None where that fails."""
    path = log_home() / f"mishap-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except OSError:
        return None
    return str(path)


def refuse(failed: Failed) -> int:
    """Say why the engine could not do a job; returns the exit status for its kind."""
    click.echo(clean(failed.message), err=True)
    return {"input": BAD_INPUT, "model": BAD_INPUT, "memory": INVALID, "aborted": INTERRUPTED}.get(
        failed.kind, INTERNAL
    )
