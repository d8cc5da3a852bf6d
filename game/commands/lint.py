"""`latency-wall lint`: does a stage hold, in its words and on this machine?"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from game.commands.options import draft_option, engine_options, json_option
from game.commands.output import ProgressTalk, print_json, talk
from game.proof import Proof, prove, show_build
from game.rules.verdict import Verdict
from story.schema import Stage

if TYPE_CHECKING:
    from game.session import Session


@click.command("lint")
@click.argument("file", required=False)
@click.option("--words", is_flag=True, help="Only the story's words: no trial is run.")
@engine_options
@draft_option
@json_option
def command(
    file: str | None,
    words: bool,
    device: str,
    model: str,
    draft_model: str,
    worker: str | None,
    as_json: bool,
) -> int:
    """Does a stage hold? FILE is a stage file or a stage's name; without it, every open hall.

    The words are checked first; then the stage's builds are run: the default must lose, two
    different builds must win, and each by a margin above this machine's noise. In a hall that
    demands a scar, a build must leave it: break the memory budget, or fall over the cliff.
    Exit status: 0 all holds, 1 something does not.
    """
    from game.session import Session

    session = Session.open(
        worker=worker, device=device, model=model, draft=draft_model, practice=True
    )
    stages = chosen_stages(session, file)
    faults = [f"{f.file}:{f.line}: {f.code}: {f.message}" for f in word_findings(file)]
    proofs = () if words else asyncio.run(_prove(session, stages, as_json))
    if as_json:
        print_json({"words": faults, "stages": [as_document(proof) for proof in proofs]})
    else:
        show(faults, proofs, stages)
    return 1 if faults or any(proof.findings for proof in proofs) else 0


def chosen_stages(session: Session, file: str | None) -> tuple[Stage, ...]:
    """The stage a file or name means; every open one for None.

    Raises:
        StoryError: a file that is no stage. SessionInputError: a name that is none.
    """
    if file is None:
        return tuple(stage for stage in session.stages if stage.open)
    if file.endswith((".yaml", ".yml")) or "/" in file:
        from story.loader import load_stage_file

        return (load_stage_file(Path(file)),)
    return (session.open_stage(file),)


def word_findings(file: str | None) -> tuple[Any, ...]:
    if file is not None:
        return ()
    from story.lint import lint_story

    return lint_story()


async def _prove(session: Session, stages: tuple[Stage, ...], quiet: bool) -> tuple[Proof, ...]:
    progress = ProgressTalk(quiet=quiet and not sys.stderr.isatty())
    proofs = []
    try:
        await session.ready(progress)
        for stage in stages:
            if unshown := session.lesson_line(stage):
                progress.close()
                talk(unshown)

            async def run(build: dict[str, Any], stage: Stage = stage) -> tuple[Verdict, float]:
                progress.close()
                talk(f"{stage.id}: {show_build(build)} ...")
                outcome = await session.trial(
                    stage.id, {**stage.build, **build}, None, on_event=progress, stage=stage
                )
                return outcome.verdict, session.machine.noise if session.machine else 0.0

            proofs.append(await prove(stage, run))
    finally:
        progress.close()
        await session.close()
    return tuple(proofs)


def as_document(proof: Proof) -> dict[str, Any]:
    return {
        "stage": proof.stage,
        "holds": not proof.findings,
        "findings": list(proof.findings),
        "trials": [msgspec.to_builtins(trial) for trial in proof.trials],
    }


def show(faults: list[str], proofs: tuple[Proof, ...], stages: tuple[Stage, ...]) -> None:
    for fault in faults:
        click.echo(fault)
    for proof in proofs:
        click.echo(f"{proof.stage}: {'holds' if not proof.findings else 'DOES NOT HOLD'}")
        for trial in proof.trials:
            goals = "  ".join(
                f"{goal.metric} {goal.measured:.3g} ({goal.op} {goal.bound:g})"
                for goal in trial.goals
            )
            how = "flooded" if trial.flooded else "fallen" if trial.fallen else ""
            word = f"{trial.word}, {how}" if how else trial.word
            click.echo(f"  {word:<13} {show_build(trial.build)}  {goals}")
        for finding in proof.findings:
            click.echo(f"  ! {finding}")
    if not faults and not proofs:
        click.echo(f"words hold: {', '.join(stage.id for stage in stages)}")
