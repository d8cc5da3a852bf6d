"""The goals in the forge: what is asked, and where the last trial stood."""

from __future__ import annotations

from collections.abc import Callable

from rich.cells import cell_len

from game.rules.verdict import Verdict
from game.screens.goal_words import goal_figure, goal_rows
from game.widgets.cells import pad
from game.widgets.ink import Line, Run
from game.widgets.typesetting import paragraph
from story.schema import Stage

Say = Callable[..., str]
_DESCENT = {"flood": "forge.descent", "cliff": "forge.descent.cliff"}
"""By the scar that a hall demands once its goals are met."""


def forge_goals(
    say: Say, stage: Stage, last: Verdict | None, descending: bool, width: int, plain: bool
) -> list[Line]:
    """Lines of at most `width` cells. While `descending`, what is asked is to break it."""
    if not stage.goals:
        return paragraph(say("forge.no_goals"), width, "dim")
    if descending:
        head = paragraph(say(_DESCENT.get(stage.scar or "", "forge.descent")), width, "danger")
    else:
        head = paragraph(say(_head(stage, last)), width, "dim")
    if last is not None and last.goals:
        return [*head, *goal_rows(say, last, width, plain)]
    names = [say(f"metric.{goal.metric}") for goal in stage.goals]
    wide = max(cell_len(name) for name in names)
    for name, goal in zip(names, stage.goals, strict=True):
        bound = f"{goal.op} {goal_figure(goal.metric, goal.bound)}"
        head.append((Run(f"  {pad(name, wide)}  ", "text"), Run(bound, "strong")))
    return head


def _head(stage: Stage, last: Verdict | None) -> str:
    """A build that only has to hold is counted alone; others are compared with the reference."""
    if last is not None and last.goals:
        return "forge.goals.last"
    return "forge.goals" if stage.trial in ("paired", "serve") else "forge.goals.counted"
