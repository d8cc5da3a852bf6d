"""Goals as rows of intervals, for every screen that shows a verdict."""

from __future__ import annotations

from engine.metrics import METRICS
from game.rules.verdict import GoalOutcome, Verdict
from game.widgets.figures import plain_number
from game.widgets.ink import Line
from game.widgets.interval_scale import GoalRow, draw_goals
from game.wording import Say, figure


def goal_rows(say: Say, verdict: Verdict, width: int, plain: bool = False) -> list[Line]:
    """Each goal as an interval against its bound, all on one scale, with the axis beneath.

    A goal whose metric was never measured (the vessel broke first) has no place on the scale.
    """
    rows = []
    for goal in verdict.goals:
        known = goal.holds is not None or goal.metric in verdict.metrics
        rows.append(
            GoalRow(
                outcome=goal,
                name=say(f"metric.{goal.metric}"),
                bound=f"{goal.op} {goal_figure(goal.metric, goal.bound)}",
                measured=goal_figure(goal.metric, goal.measured, goal.bound) if known else "-",
                state=say(f"goal.{state_of(goal)}" if known else "goal.unmeasured"),
                measured_at_all=known,
            )
        )
    return draw_goals(rows, width, say("goal.bound"), plain)


def goal_figure(metric: str, value: float, bound: float | None = None) -> str:
    """A figure beside its goal: counted tokens whole, shares to a tenth of a per cent.

    A ratio that would read like the `bound` it misses (or just holds) has a figure more.
    """
    known = METRICS.get(metric)
    if known is not None and known.unit == "tokens":
        return f"{value:,.0f}"
    if known is not None and known.kind == "share":
        return f"{plain_number(value * 100)} %"
    told = figure(metric, value)
    if known is not None and known.kind == "ratio" and bound is not None and value != bound:
        return f"{plain_number(value)} x" if told == figure(metric, bound) else told
    return told


def state_of(goal: GoalOutcome) -> str:
    return "open" if goal.holds is None else "holds" if goal.holds else "broken"
