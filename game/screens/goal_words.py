"""Goals, remarks and bounds in the player's words, for every screen that shows a verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.metrics import METRICS
from game.rules.verdict import GoalOutcome, Remark
from game.widgets.figures import plain_number, share, times
from game.widgets.ink import Line
from game.widgets.interval_scale import GoalRow, draw_goals

Say = Callable[..., str]


def figure(metric: str, value: float) -> str:
    """A metric's value with the unit it is read in."""
    kind = METRICS[metric].kind if metric in METRICS else "absolute"
    if kind == "ratio":
        return f"{times(value)} x"
    if kind == "share":
        return share(value)
    return plain_number(value)


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


def remark_words(say: Say, remark: Remark) -> str:
    """A remark with its details, names of metrics and phases in the player's language."""
    details = dict(remark.details)
    if "metric" in details:
        details["metric"] = say(f"metric.{details['metric']}")
    if details.get("phase") in ("prefill", "decode"):
        details["phase"] = say(f"piece.phase.{details['phase']}")
    return say(f"remark.{remark.code}", **details)


def bound_words(say: Say, bound: str) -> str:
    return say(f"bound.{bound.replace(' ', '_')}")
