"""A trial's outcome as JSON and as lines of text (headless and plain mode share the lines)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from engine.clean import clean
from engine.trial import TrialResult
from game.commands.draft_report import draft_document, draft_lines
from game.commands.memory_report import (
    flood_document,
    load_document,
    memory_document,
    memory_lines,
)
from game.commands.weight_report import ladder_document, quantised_document, weight_lines
from game.rules.verdict import GoalOutcome, Verdict
from game.wording import bound_words, figure, remark_words

if TYPE_CHECKING:
    from game.session import Outcome, Session

SIGN = {"pass": "[+]", "fail": "[x]", "inconclusive": "[?]", "invalid": "[!]"}


def document(outcome: Outcome) -> dict[str, Any]:
    """The documented JSON of a trial; keys are stable."""
    verdict, result = outcome.verdict, outcome.result
    quality: dict[str, Any] = {}
    if result is not None and result.quality is not None:
        quality = msgspec.to_builtins(result.quality)
    return {
        "verdict": verdict.word,
        "stage": outcome.stage,
        "build": outcome.build,
        "resolved": msgspec.to_builtins(result.config) if result else None,
        "reasons": result.reasons if result else {},
        "goals": [msgspec.to_builtins(goal) for goal in verdict.goals],
        "metrics": verdict.metrics,
        "memory": memory_document(result) if result else {},
        "flood": flood_document(result) if result else None,
        "load": load_document(result) if result else None,
        "quality": quality,
        "quantised": quantised_document(result) if result else None,
        "ladder": ladder_document(result) if result else [],
        "draft": draft_document(result) if result else None,
        "bound_by": verdict.bound_by,
        "bound_share": verdict.bound_share,
        "phase_bounds": verdict.phase_bounds,
        "remarks": [msgspec.to_builtins(r) for r in (*verdict.reasons, *verdict.advice)],
        "kernel_path": result.kernel_path if result else {},
        "prefix_hit_rate": result.prefix_hit_rate if result else None,
        "pairs": verdict.pairs_used,
        "noise_cv": verdict.noise_cv,
        "guess": msgspec.to_builtins(outcome.guess) if outcome.guess else {"sealed": False},
        "debt": {"before": outcome.debt_before, "after": outcome.debt_after},
        "crowns": list(verdict.crowns),
        "scar": outcome.facts.get("scar", False),
        "record": outcome.record.digest if outcome.record else None,
        "environment": msgspec.to_builtins(result.environment) if result else None,
    }


def goal_line(session: Session, goal: GoalOutcome, measured: bool = True) -> str:
    """A goal, its bound and what was measured; a counted figure has no interval to show."""
    state = {True: "holds", False: "broken", None: "undecided"}[goal.holds]
    metric, (low, high) = goal.metric, goal.interval
    wanted = f"{session.text('metric.' + metric)}  {goal.op} {figure(metric, goal.bound)}"
    if not measured:
        return f"{wanted}   {session.text('plain.goal.unmeasured')}"
    found = figure(metric, goal.measured)
    if low != high:
        found += f"  [{figure(metric, low)}, {figure(metric, high)}]"
    return f"{wanted}   {found}  {session.text('plain.goal.' + state)}"


def verdict_lines(session: Session, outcome: Outcome) -> Iterator[str]:
    """What happened and why, one fact a line, for a terminal or a screen reader."""
    verdict, result = outcome.verdict, outcome.result
    yield f"{SIGN[verdict.word]} {session.text('plain.verdict.' + verdict.word)}"
    for remark in verdict.reasons:
        yield "  " + remark_words(session.text, remark)
    for goal in verdict.goals:
        yield "  " + goal_line(session, goal, goal.metric in verdict.metrics)
    for told in (memory_lines, weight_lines, draft_lines):
        for line in told(session, outcome):
            yield "  " + line
    if result is not None:
        yield from _measured_lines(session, verdict, result)
    yield from _ledger_lines(session, outcome)
    for remark in verdict.advice:
        yield "  " + remark_words(session.text, remark)


def _measured_lines(session: Session, verdict: Verdict, result: TrialResult) -> Iterator[str]:
    for phase, bound in verdict.phase_bounds.items():
        share = verdict.metrics.get(f"{phase}_time_share")
        ceiling = verdict.metrics.get(f"{phase}_ceiling_share")
        yield "  " + session.text(
            "plain.phase",
            phase=session.text(f"plain.{phase}"),
            bound=bound_words(session.text, bound),
            ceiling="-" if ceiling is None else f"{ceiling * 100:.0f}",
            share="-" if share is None else f"{share * 100:.0f}",
        )
    yield "  " + session.text(
        "plain.memory",
        predicted=f"{result.memory.predicted_bytes / 1e6:.0f}",
        allocated=f"{result.memory.allocated_bytes / 1e6:.0f}",
    )
    if result.quality is not None:
        yield "  " + session.text(
            "plain.quality", kl=f"{result.quality.kl:.4f}", top1=f"{result.quality.top1 * 100:.1f}"
        )
    path = ", ".join(f"{name}: {form}" for name, form in result.kernel_path.items())
    yield "  " + session.text("plain.path", path=clean(path, one_line=True))


def _ledger_lines(session: Session, outcome: Outcome) -> Iterator[str]:
    if outcome.guess is not None and outcome.guess.truth is not None:
        yield "  " + session.text(
            "plain.guess",
            guess=session.show_guess(outcome.stage, outcome.guess.value),
            truth=session.show_guess(outcome.stage, outcome.guess.truth),
        )
    yield "  " + session.text("plain.debt", before=outcome.debt_before, after=outcome.debt_after)
    if outcome.crowns_new:
        crowns = ", ".join(session.text(f"plain.crown.{name}") for name in outcome.crowns_new)
        yield "  " + session.text("plain.crowns", crowns=crowns)
    if outcome.record is not None:
        yield "  " + session.text("plain.record", digest=outcome.record.digest[:12])


def report(session: Session, outcome: Outcome) -> None:
    for line in verdict_lines(session, outcome):
        click.echo(line)
