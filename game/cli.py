"""The command line. Grows one module a command under `game/commands/`."""

from __future__ import annotations

import click


@click.group(invoke_without_command=True)
def main() -> None:
    """Latency Wall (延迟之壁)."""
