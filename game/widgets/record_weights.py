"""Quantised weights on a record's page: how they were made, and what was left of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from engine.clean import clean
from engine.quality_report import Answer, Quality, Rung
from engine.quantised import Quantised
from game.rules.verdict import Verdict
from game.rules.weight_facts import chosen_answer
from game.widgets.answer_pair import AnswerWords, draw_pair
from game.widgets.figures import plain_number
from game.widgets.hall_detail import Say
from game.widgets.record_page import Page
from game.widgets.weight_rows import ladder_row, quality_rows, weight_rows

_MOST_PROMPT = 500  # characters of a question
_Value = TypeVar("_Value")


def weights_section(
    page: Page, say: Say, result: Mapping[str, Any], verdict: Verdict | None
) -> None:
    """Nothing of a trial in full width; a part that cannot be read is left out, never made up."""
    weights = _read(result.get("quantised"), Quantised)
    quality = _read(result.get("quality"), Quality)
    ladder = _read(result.get("ladder"), tuple[Rung, ...]) or ()
    asked = quality is not None and (quality.probes is not None or bool(quality.answers))
    if weights is None and not ladder and not asked:
        return
    page.section(say("ledger.fall" if verdict and verdict.fallen else "ledger.weights"))
    held = verdict.metrics.get("average_bits") if verdict is not None else None
    rows = weight_rows(say, weights, held) if weights is not None else []
    if quality is not None:
        rows.append((say("ledger.fall.kl"), plain_number(quality.kl)))
        rows += quality_rows(say, quality)
    if ladder:
        rows.append(ladder_row(say, ladder))
    for name, figure in rows:
        page.pair(name, figure)
    if quality is not None and quality.answers:
        _words(page, say, chosen_answer(quality.answers))


def _words(page: Page, say: Say, answer: Answer) -> None:
    """What was asked and both answers: of a fall, the babble itself."""
    page.gap()
    page.text(clean(answer.prompt, _MOST_PROMPT, one_line=True), "$mist")
    words = AnswerWords(say("detail.answer.full"), say("detail.answer.build"), say("answer.end"))
    page.drawn(draw_pair(answer.full, answer.build, words, page.width))


def _read(told: Any, shape: type[_Value]) -> _Value | None:
    if told is None:
        return None
    try:
        return msgspec.convert(told, shape)
    except msgspec.ValidationError:
        return None
