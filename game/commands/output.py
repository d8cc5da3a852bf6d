"""How headless commands print: data on stdout, talk on stderr."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from engine.messages import Progress


def print_json(value: Any) -> None:
    """One JSON document, indented, on stdout."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def talk(message: str) -> None:
    click.echo(message, err=True)


class ProgressTalk:
    """Progress on stderr: one rewritten line on a terminal, one line a phase elsewhere."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._terminal = sys.stderr.isatty()
        self._phase = ""
        self._width = 0

    def __call__(self, event: object) -> None:
        if self._quiet or not isinstance(event, Progress):
            return
        left = f", about {event.seconds_left:.0f} s left" if event.seconds_left else ""
        order = f" {event.order}" if event.order else ""
        detail = f" {event.detail}" if event.detail else ""
        line = f"{event.phase}{order} {event.done}/{event.total}{left}{detail}"
        if self._terminal:
            click.echo("\r" + line.ljust(self._width), err=True, nl=False)
            self._width = max(self._width, len(line))
        elif event.phase != self._phase:
            click.echo(f"{event.phase} ...", err=True)
        self._phase = event.phase

    def close(self) -> None:
        if self._terminal and self._width:
            click.echo("\r" + " " * self._width + "\r", err=True, nl=False)
        self._width = 0
