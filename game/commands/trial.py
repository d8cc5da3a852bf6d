"""`latency-wall trial`: one trial, headless, judged by the same rules as in the game."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from game.commands.options import (
    draft_option,
    engine_options,
    json_option,
    language_option,
    profile_option,
    set_option,
)
from game.commands.output import ProgressTalk, print_json, talk

if TYPE_CHECKING:
    from game.session import Session
    from story.schema import Language


@click.command("trial")
@click.argument("stage")
@set_option
@click.option("--guess", default=None, help="Seal a guess; without one the trial is practice.")
@click.option("--seed", type=click.IntRange(0), default=None, help="Fix the prompts.")
@engine_options
@draft_option
@profile_option
@language_option
@json_option
def command(
    stage: str,
    settings: tuple[str, ...],
    guess: str | None,
    seed: int | None,
    device: str,
    model: str,
    draft_model: str,
    worker: str | None,
    profile: str | None,
    lang: Language | None,
    as_json: bool,
) -> int:
    """Run one trial of STAGE and print its verdict.

    Exit status: 0 pass, 1 fail, 2 bad input, 3 inconclusive, 4 invalid.
    """
    from game.session import Session

    session = Session.open(
        profile=profile, worker=worker, device=device, model=model, draft=draft_model
    )
    if lang:
        session.speak(lang)
    return asyncio.run(_trial(session, stage, settings, guess, seed, as_json))


async def _trial(
    session: Session,
    stage_id: str,
    settings: tuple[str, ...],
    guess: str | None,
    seed: int | None,
    as_json: bool,
) -> int:
    from game.commands.trial_report import document, report
    from game.rules.verdict import EXIT_CODE

    stage = session.open_stage(stage_id)
    build = session.parse_settings(stage_id, settings)
    guessed = session.parse_guess(stage_id, guess) if guess is not None else None
    if guess is None and not as_json:
        talk("No guess was sealed: it is practice, which brings no crown, no debt and no scar.")
    progress = ProgressTalk(quiet=as_json and not sys.stderr.isatty())
    try:
        await session.ready(progress)
        if unshown := session.lesson_line(stage):
            progress.close()
            talk(unshown)
        outcome = await session.trial(stage.id, build, guessed, on_event=progress, seed=seed)
    finally:
        progress.close()
        await session.close()
    for notice in (*session.take_notices(), outcome.warning):
        if notice:
            talk(notice)
    if as_json:
        print_json(document(outcome))
    else:
        report(session, outcome)
    return EXIT_CODE[outcome.verdict.word]
