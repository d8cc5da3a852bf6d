"""One record laid open: what was guessed, measured, judged and charged, and on what machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from textual.content import Content

from engine.clean import clean
from engine.metrics import METRICS
from engine.trial import Flood
from game.rules.standing import Entry
from game.rules.verdict import GoalOutcome, Remark, Verdict
from game.widgets.figures import plain_number, size, times
from game.widgets.hall_detail import Say
from game.widgets.record_page import Page
from game.widgets.record_weights import weights_section
from saves.documents import GuessRecord, Record

ShowGuess = Callable[[str, float | str | None], str]
VERDICT_STYLE = {
    "pass": "bold $cyan-bright",
    "fail": "bold $violet",
    "inconclusive": "bold $bronze-bright",
    "invalid": "bold $mist",
}


def local_time(recorded_at: str, form: str) -> str:
    """An ISO time in the player's own time zone; as it was written where it is no time."""
    try:
        return datetime.fromisoformat(recorded_at).astimezone().strftime(form)
    except ValueError:
        return clean(recorded_at, limit=16, one_line=True)


def verdict_of(record: Record) -> Verdict | None:
    """None where a later game wrote what this one cannot read."""
    try:
        return msgspec.convert(record.verdict, Verdict)
    except msgspec.ValidationError:
        return None


def record_detail(
    say: Say, show_guess: ShowGuess, hall: str, record: Record, entry: Entry | None, width: int
) -> Content:
    """Everything kept of one trial, in lines of at most `width` cells. Foreign text is cleaned."""
    verdict = verdict_of(record)
    page = Page(width)
    page.line(hall, "bold $bronze-bright")
    page.line(local_time(record.recorded_at, "%Y-%m-%d %H:%M:%S"), "$mist")
    page.gap()
    word = str(record.verdict.get("word", "invalid"))
    told = say("ledger.word.fell" if verdict and verdict.fallen else f"map.word.{word}")
    page.line(told, VERDICT_STYLE.get(word, "$silver"))
    for remark in verdict.reasons if verdict else ():
        page.text(_remark(say, remark), "$silver")
    if record.guess is not None:
        page.gap()
        _guess(page, say, show_guess, record.stage, record.guess)
    if entry is not None:
        for charge in entry.charges:
            page.pair(say(f"charge.{charge.code}"), f"{charge.amount:+d}")
        page.pair(say("ledger.debt"), f"{entry.debt_before} -> {entry.debt_after}")
        if not entry.counted:
            page.text(say("ledger.uncounted"), "$mist")
    page.section(say("ledger.build"))
    for knob, value in sorted(record.build.items()):
        page.pair(knob, str(value))
    if verdict is not None and verdict.goals:
        page.section(say("ledger.goals"))
        for goal in verdict.goals:
            _goal(page, say, goal, goal.holds is not None or goal.metric in verdict.metrics)
    if record.result is not None:
        _result(page, say, record.result, verdict)
    page.gap()
    page.text(f"sha256 {record.digest}", "$faint")
    return Content("\n").join(page.lines)


def _remark(say: Say, remark: Remark) -> str:
    details = {
        name: say(f"metric.{value}") if name == "metric" and value in METRICS else value
        for name, value in remark.details.items()
    }
    return say(f"remark.{remark.code}", **details)


def _guess(page: Page, say: Say, show_guess: ShowGuess, stage: str, guess: GuessRecord) -> None:
    page.pair(say("ledger.guess"), show_guess(stage, guess.value))
    page.pair(say("ledger.truth"), show_guess(stage, guess.truth))
    if guess.factor is not None and not isinstance(guess.value, str):
        page.pair(say("ledger.off_by"), f"{times(guess.factor)} x")


def _goal(page: Page, say: Say, goal: GoalOutcome, known: bool) -> None:
    """`known` is false for a goal whose metric was never measured: the vessel broke first."""
    state = {True: "holds", False: "broken", None: "undecided"}[goal.holds]
    style = {True: "$cyan-bright", False: "$violet", None: "$bronze-bright"}[goal.holds]
    metric = METRICS.get(goal.metric)

    def number(value: float) -> str:
        if metric is not None and metric.unit == "tokens":
            return f"{value:,.0f}"
        if metric is not None and metric.kind == "share":
            return f"{plain_number(value * 100)} %"
        return plain_number(value)

    low, high = goal.interval
    page.text(f"{say(f'metric.{goal.metric}')}  {goal.op} {number(goal.bound)}", "$mist")
    # What was counted and not timed has no interval.
    between = f"  [{number(low)}, {number(high)}]" if low != high else ""
    measured = number(goal.measured) if known else "-"
    page.text(f"  {measured}{between}  {say(f'ledger.goal.{state}')}", style)


def _result(page: Page, say: Say, result: Mapping[str, Any], verdict: Verdict | None) -> None:
    """The engine's own words. A field that is not there is left out, never made up."""
    paths = result.get("kernel_path")
    if isinstance(paths, Mapping) and paths:
        page.section(say("ledger.path"))
        for name, form in sorted(paths.items()):
            page.pair(str(name), str(form))
    _flood(page, say, result.get("flood"))
    weights_section(page, say, result, verdict)
    memory = result.get("memory")
    if isinstance(memory, Mapping):
        page.section(say("ledger.memory"))
        for kind in ("predicted", "allocated"):
            parts = memory.get(kind)
            if isinstance(parts, Mapping):
                page.pair(say(f"ledger.{kind}"), size(sum(parts.values())))
    environment = result.get("environment")
    if isinstance(environment, Mapping):
        page.section(say("ledger.environment"))
        for name, value in environment.items():
            page.pair(str(name), str(value))


def _flood(page: Page, say: Say, told: Any) -> None:
    """The account of a broken vessel, kept as evidence; a flood that cannot be read is left out."""
    if told is None:
        return
    try:
        flood = msgspec.convert(told, Flood)
    except msgspec.ValidationError:
        return
    page.section(say("ledger.flood"))
    account = flood.ledger
    if account.budget is not None:
        page.pair(say("ledger.flood.budget"), size(account.budget))
    for name, amount in account.parts.items():
        page.pair(say(f"forge.part.{name}"), size(amount))
    page.pair(say("ledger.flood.free"), size(flood.free_bytes))
    page.pair(say("ledger.flood.asked"), size(flood.asked_bytes), "$violet")
    page.pair(say("ledger.flood.live"), f"{account.live_tokens:,}")
    of_all = say("piece.abyss.of", count=flood.running, all=flood.requests)
    page.pair(say("ledger.flood.running"), of_all)
    page.pair(say("ledger.flood.fits"), f"{flood.fits:,}")
