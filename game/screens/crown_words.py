"""The crowns of a hall under a verdict: every one that it offers, won or not."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len

from game.outcome import Outcome
from game.widgets.ink import Ink, Line, Run, cells
from story.schema import Stage

Say = Callable[..., str]


def crown_lines(say: Say, stage: Stage, outcome: Outcome, width: int) -> list[Line]:
    """Every crown of the hall on as few lines as they need; a sign tells those that were won."""
    lines: list[list[Run]] = [[Run(say("verdict.crowns") + "  ", "text")]]
    won = set(outcome.verdict.crowns) | set(outcome.crowns_new)
    names = [crown.name for crown in stage.crowns]
    for name in (*names, *(("pareto",) if "pareto" in won else ())):
        mark = "*" if name in won else "-"
        new = f" {say('verdict.crown_new')}" if name in outcome.crowns_new else ""
        ink: Ink = "bronze" if name in won else "faint"
        run = Run(f"{mark} {say(f'verdict.crown.{name}')}{new}   ", ink)
        if cells(tuple(lines[-1])) + cell_len(run.text.rstrip()) > width:
            lines.append([Run("  ", "text")])
        lines[-1].append(run)
    return [tuple(line) for line in lines]
