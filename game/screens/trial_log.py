"""Judged trials as lines: the word, the knobs as they stood, the goals' figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from engine.clean import clean
from engine.domains import Value
from game.widgets.cells import pad
from game.widgets.figures import times
from game.widgets.ink import Ink, Line, Run

if TYPE_CHECKING:
    from saves.documents import Record
    from story.schema import Stage

Say = Callable[..., str]
KnobWords = Callable[[str, Value], str]
SIGN: Mapping[str, str] = {"pass": "+", "fail": "x", "inconclusive": "?", "invalid": "!"}
"""A verdict is told by a sign as well as by its colour."""
BADGE: Mapping[str, Ink] = {
    "pass": "pass",
    "fail": "fail",
    "inconclusive": "inconclusive",
    "invalid": "invalid",
}


def badge(say: Say, word: str) -> Run:
    """The verdict's word on its ground; a word no judge uses is shown as invalid."""
    known = word if word in SIGN else "invalid"
    return Run(f" {SIGN[known]} {say(f'verdict.{known}')} ", BADGE[known])


def verdict_line(
    say: Say,
    knob_words: KnobWords,
    stage: Stage,
    verdict: Mapping[str, Any],
    build: Mapping[str, Value],
    when: str = "",
) -> Line:
    """One judged trial in one line. `verdict` is the judge's value as plain JSON."""
    knobs = "  ".join(
        f"{say(f'knob.{name}')} {knob_words(name, build[name])}"
        for name in stage.knobs
        if name in build
    )
    metrics = verdict.get("metrics")
    figures = "  ".join(
        f"{times(float(metrics[goal.metric]))} x"
        for goal in stage.goals
        if isinstance(metrics, dict) and isinstance(metrics.get(goal.metric), int | float)
    )
    date = clean(when[:10], one_line=True)
    return (
        badge(say, str(verdict.get("word", ""))),
        Run(f"  {date}" if date else "", "faint"),
        Run(f"  {clean(knobs, one_line=True)}", "text"),
        Run(f"  {figures}" if figures else "", "silver"),
    )


def record_lines(
    say: Say, knob_words: KnobWords, stage: Stage, records: Sequence[Record], rows: int
) -> list[Line]:
    """The latest `rows` trials of a hall on record, the newest first, two lines each."""
    lines: list[Line] = []
    for record in reversed(records):
        if record.stage != stage.id or len(lines) + 2 > rows:
            continue
        head, date, knobs, figures = verdict_line(
            say, knob_words, stage, record.verdict, record.build, record.recorded_at
        )
        lines.append((head, date, figures))
        lines.append((Run(pad("", 2) + knobs.text.strip(), "dim"),))
    return lines
