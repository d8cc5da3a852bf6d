"""The command line: one module a command under `game/commands`, imported when it is called.

Data goes to stdout, talk to stderr. Exit status: 0 pass or done, 1 the trial failed its goals,
2 wrong use or bad input, 3 inconclusive, 4 invalid, 5 internal error, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

import click

COMMANDS = {
    "play": "Open the game (the same as no command at all).",
    "stages": "The halls: their state, crowns and best records.",
    "trial": "Run one trial headless and print its verdict.",
    "chat": "One answer, streamed, with TTFT, TPOT and memory.",
    "bench": "This machine's ceilings, prefill and decode rates.",
    "lint": "Does a stage hold: the default loses, two winners exist.",
    "sweep": "Trials over a grid of builds: a table, the front, a chart.",
    "model": "List, fetch, add or describe models.",
    "doctor": "What this machine has, what is missing, how to get it.",
    "worker": "The engine process, for use on another machine.",
}
INTERNAL_ERROR, BAD_INPUT, INTERRUPTED = 5, 2, 130


class LazyGroup(click.Group):
    """A group whose commands are imported only when asked for: the title must come quickly."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"game.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from engine.clean import clean
            from engine.domains import nearest_name

            shown = clean(args[0], 40, one_line=True)
            raise click.UsageError(
                f"no command is named {shown!r}; nearest: {nearest_name(args[0], COMMANDS)}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, invoke_without_command=True)
@click.version_option(package_name="latency-wall", message="latency-wall %(version)s")
@click.pass_context
def root(ctx: click.Context) -> int:
    """Latency Wall (延迟之壁): a game about making a language model answer fast."""
    if ctx.invoked_subcommand is not None:
        return 0
    from game.commands.play import open_game

    return open_game()


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; nothing a user can do shows a traceback."""
    try:
        status = root.main(
            args=list(arguments) if arguments is not None else None,
            prog_name="latency-wall",
            standalone_mode=False,
        )
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        error.show(sys.stderr)
        return BAD_INPUT
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:
        from game.commands.mishap import explain

        return explain(error)
    return status if isinstance(status, int) else 0


def main() -> None:
    sys.exit(run())
