"""`latency-wall play`, and `latency-wall` alone: open the game."""

from __future__ import annotations

import asyncio
import gc
import sys

import click

from game.commands.options import draft_option, engine_options, language_option, profile_option


@click.command("play")
@language_option
@profile_option
@click.option("--plain", is_flag=True, help="Lines of text only: for screen readers.")
@engine_options
@draft_option
def command(
    lang: str | None,
    profile: str | None,
    plain: bool,
    device: str,
    model: str,
    draft_model: str,
    worker: str | None,
) -> int:
    """Open the game (the same as no command at all)."""
    return open_game(lang, profile, plain, device, model, worker, draft_model)


def open_game(
    lang: str | None = None,
    profile: str | None = None,
    plain: bool = False,
    device: str = "cpu",
    model: str = "default",
    worker: str | None = None,
    draft: str = "",
) -> int:
    """Open the Textual game, or the plain text one.

    Raises:
        click.UsageError: there is no terminal to draw on.
    """
    if not plain and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "the game needs a terminal; try `latency-wall trial gate` or `play --plain`"
        )
    # Nothing made before the first frame is garbage: collecting costs some 40 ms of its 400.
    # The application turns the collector back on once it is drawn.
    gc.disable()
    from game.session import Session

    session = Session.open(profile=profile, worker=worker, device=device, model=model, draft=draft)
    if lang:
        session.update_settings(language=lang)
    if plain:
        gc.enable()
        from game.plain import PlainGame

        return asyncio.run(PlainGame(session).play())
    from game.app import LatencyWallApp

    LatencyWallApp(session).run()
    return 0
