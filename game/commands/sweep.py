"""`latency-wall sweep`: trials over a grid of builds; a table, the Pareto front, a chart."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine.clean import clean
from game.commands.options import draft_option, engine_options, json_option, set_option
from game.commands.output import ProgressTalk, print_json, talk
from game.outcome import SessionInputError
from game.proof import show_build
from game.sweep import (
    Axis,
    Build,
    Row,
    axes_of,
    better_words,
    document,
    front_of,
    parse_axis,
    sweep,
)
from game.sweep import grid as make_grid
from game.widgets.figures import size
from game.wording import figure

if TYPE_CHECKING:
    from game.session import Outcome, Session
    from story.schema import Stage

GRID_LIMIT = 64
INTERRUPTED = 130


@dataclass
class _Sweep:
    """What is asked, and the rows so far: an interrupted sweep still shows what it measured."""

    stage: Stage
    axes: tuple[Axis, ...]
    fixed: Build
    seed: int
    builds: tuple[Build, ...]
    rows: list[Row] = field(default_factory=list)


@click.command("sweep")
@click.argument("stage")
@click.option(
    "--over",
    "ranges",
    multiple=True,
    metavar="KNOB=A,B,C",
    help="A knob and the values to try; repeat it for a grid.",
)
@set_option
@click.option("--seed", type=click.IntRange(0), default=None, help="Fix the prompts.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=GRID_LIMIT,
    show_default=True,
    help="Most builds of one sweep.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    default=None,
    metavar="FILE.svg",
    help="Draw the builds and their front (needs the extra `report`).",
)
@engine_options
@draft_option
@json_option
def command(
    stage: str,
    ranges: tuple[str, ...],
    settings: tuple[str, ...],
    seed: int | None,
    limit: int,
    plot: Path | None,
    device: str,
    model: str,
    draft_model: str,
    worker: str | None,
    as_json: bool,
) -> int:
    """Try a grid of builds of STAGE: a row a trial, and which of them no other beats.

    Every build serves prompts drawn from one seed. The trials are practice: nothing is recorded.
    A build that cannot run is a row with its reason.
    Exit status: 0 the sweep is done, 2 bad input, 130 interrupted (what was measured is printed).
    """
    from game.session import Session

    session = Session.open(
        worker=worker, device=device, model=model, draft=draft_model, practice=True
    )
    hall = session.open_stage(stage)
    axes = tuple(parse_axis(text, hall.knobs) for text in ranges)
    fixed = session.parse_settings(stage, settings)
    both = next((axis.knob for axis in axes if axis.knob in fixed), None)
    if both is not None:
        raise SessionInputError(f"{both} is swept and set; drop one of --over and --set")
    asked = _Sweep(
        hall,
        axes,
        fixed,
        secrets.randbelow(2**31) if seed is None else seed,
        make_grid(axes, limit),
    )
    if plot is not None:
        check_plot(plot)
    try:
        asyncio.run(_run(session, asked, as_json))
        status = 0
    except KeyboardInterrupt:
        talk(f"Interrupted after {len(asked.rows)} of {len(asked.builds)} builds.")
        status = INTERRUPTED
    if as_json:
        print_json(document(hall, axes, fixed, asked.seed, asked.rows))
    else:
        show(session, asked)
    if plot is not None and asked.rows:
        from game.sweep_plot import draw

        draw(plot, hall, asked.rows, session.text, session.stage_text(hall.id).name)
        talk(f"Drawn: {clean(str(plot), one_line=True)}")
    return status


def check_plot(path: Path) -> None:
    """Refuse a chart that could not be written, before an hour is spent on measuring.

    Raises:
        SessionInputError: no matplotlib, another ending than .svg, or a folder that is not there.
    """
    import importlib.util

    shown = clean(str(path), one_line=True)
    if path.suffix.lower() != ".svg":
        raise SessionInputError(f"the chart is an SVG file; name one: {shown}.svg")
    if importlib.util.find_spec("matplotlib") is None:
        raise SessionInputError(
            "a chart needs matplotlib; install it: pip install 'latency-wall[report]'"
        )
    if path.is_dir():
        raise SessionInputError(f"{shown} is a folder; name a file in it")
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise SessionInputError(f"{shown} cannot be written: {error.strerror}") from None
    if path.stat().st_size == 0:
        path.unlink()


async def _run(session: Session, asked: _Sweep, quiet: bool) -> None:
    progress = ProgressTalk(quiet=quiet and not sys.stderr.isatty())
    stage = asked.stage

    async def run(build: Build) -> Outcome:
        progress.close()
        talk(f"{stage.id} {len(asked.rows) + 1}/{len(asked.builds)}: {show_build(build)} ...")
        positions: dict[str, Any] = {**stage.build, **asked.fixed, **build}
        return await session.trial(stage.id, positions, None, on_event=progress, seed=asked.seed)

    try:
        await session.ready(progress)
        async for row in sweep(asked.builds, run):
            asked.rows.append(row)
    finally:
        progress.close()
        await session.close()


def show(session: Session, asked: _Sweep) -> None:
    """The table on stdout, and what its front means."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows, stage = asked.rows, asked.stage
    weighed = axes_of(stage, rows)
    best = front_of(rows, weighed)
    metrics = _columns(stage, rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column(session.text("sweep.verdict"))
    for axis in asked.axes:
        table.add_column(axis.knob.split(".")[-1], justify="right")
    for metric in metrics:
        table.add_column(session.text(f"metric.{metric}"), justify="right")
    table.add_column(session.text("sweep.why"), overflow="fold")
    for number, row in enumerate(rows):
        table.add_row(
            "*" if number in best else " ",
            session.text(f"sweep.word.{row.word}"),
            *(str(row.build[axis.knob]) for axis in asked.axes),
            *(_figure(row, metric) for metric in metrics),
            Text(_why(session, row)),
        )
    # A pipe has no width of its own: a row must stay one line there.
    width = None if sys.stdout.isatty() else 240
    Console(width=width, markup=False, highlight=False).print(table)
    if best:
        click.echo(session.text("sweep.front", axes=better_words(weighed)))
    click.echo(session.text("sweep.seed", seed=asked.seed))


def _columns(stage: Stage, rows: Sequence[Row]) -> list[str]:
    """The goals' metrics, then memory and quality where they were measured."""
    wanted = dict.fromkeys([*(goal.metric for goal in stage.goals), "memory_bytes", "kl"])
    return [name for name in wanted if any(row.figure(name) is not None for row in rows)]


def _figure(row: Row, metric: str) -> str:
    value = row.figure(metric)
    if value is None:
        return "-"
    return size(value) if metric == "memory_bytes" else figure(metric, value)


def _why(session: Session, row: Row) -> str:
    """Why a build was refused, what a failed one missed, or what bound a good one."""
    from game.wording import bound_words, remark_words

    if row.verdict is None:
        return clean(row.refused, one_line=True)
    if row.word == "pass" or not row.verdict.reasons:
        return bound_words(session.text, row.verdict.bound_by)
    return clean(remark_words(session.text, row.verdict.reasons[0]), one_line=True)
