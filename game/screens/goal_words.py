"""Goals as rows of intervals, for every screen that shows a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from game.rules.verdict import GoalOutcome
from game.widgets.ink import Line
from game.widgets.interval_scale import GoalRow, draw_goals
from game.wording import Say, figure


def goal_rows(
    say: Say, goals: Sequence[GoalOutcome], width: int, plain: bool = False
) -> list[Line]:
    """Each goal as an interval against its bound, all on one scale, with the axis beneath."""
    rows = [
        GoalRow(
            outcome=goal,
            name=say(f"metric.{goal.metric}"),
            bound=f"{goal.op} {figure(goal.metric, goal.bound)}",
            measured=figure(goal.metric, goal.measured),
            state=say(f"goal.{state_of(goal)}"),
        )
        for goal in goals
    ]
    return draw_goals(rows, width, say("goal.bound"), plain)


def state_of(goal: GoalOutcome) -> str:
    return "open" if goal.holds is None else "holds" if goal.holds else "broken"
