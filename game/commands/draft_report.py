"""Drafts in a trial's report: as JSON, and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from engine.trial import TrialResult
from game.draft_figures import draft_rows
from game.widgets.drafted_words import marked, text_head
from game.widgets.ink import plain

if TYPE_CHECKING:
    from game.session import Outcome, Session


def draft_document(result: TrialResult) -> dict[str, Any] | None:
    """The proof and the three texts; None where nobody drafted. Rates are among the metrics."""
    if result.draft is None:
        return None
    document: dict[str, Any] = msgspec.to_builtins(result.draft)
    return document


def draft_lines(session: Session, outcome: Outcome) -> Iterator[str]:
    """What became of the drafts, then each text with its words marked; nothing where nobody
    drafted."""
    for name, figure in draft_rows(session.text, outcome):
        yield f"{name}: {figure}"
    report = outcome.result.draft if outcome.result is not None else None
    if report is None or not report.texts:
        return
    yield session.text("detail.draft.legend")
    for text in report.texts:
        yield text_head(session.text, text)
        yield "  " + plain(marked(text.pieces))
