"""Beneath a verdict on a build that drafted: what stood, what it cost, the proof that nothing was
lost, and three answers as they were drafted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.draft_report import DraftedText
from game.draft_figures import draft_rows
from game.outcome import Outcome
from game.widgets.drafted_words import draw_words, text_head
from game.widgets.figure_table import draw_table
from game.widgets.ink import Line, Run
from game.widgets.typesetting import paragraph

Say = Callable[..., str]


def draft_details(say: Say, outcome: Outcome, width: int) -> list[Line]:
    """Every line of at most `width` cells; nothing where nobody drafted."""
    rows = draft_rows(say, outcome)
    report = outcome.result.draft if outcome.result is not None else None
    if not rows and report is None:
        return []
    lines: list[Line] = [(Run(say("detail.draft.title"), "bronze"),), *draw_table(rows, width)]
    return lines + (text_lines(say, report.texts, width) if report is not None else [])


def text_lines(say: Say, texts: Sequence[DraftedText], width: int) -> list[Line]:
    """Each text whole, under its kind, and what the marks mean."""
    if not texts:
        return []
    lines: list[Line] = [(), *paragraph(say("detail.draft.legend"), width, "dim")]
    for text in texts:
        lines += paragraph(text_head(say, text), width, "bronze")
        lines += [(Run("  ", "text"), *line) for line in draw_words(text.pieces, width - 2)]
    return lines
