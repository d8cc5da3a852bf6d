"""Beneath a verdict on quantised weights: how they were made, how far the model strayed, and both
models' texts side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

from engine.clean import clean
from engine.quality_report import Answer, Quality
from game.outcome import Outcome
from game.widgets.answer_pair import AnswerWords, draw_pair
from game.widgets.figure_table import Row, draw_table, left_cells
from game.widgets.figures import plain_number
from game.widgets.ink import Ink, Line, Run
from game.widgets.spark import draw_spark
from game.widgets.typesetting import paragraph
from game.widgets.weight_rows import ladder_row, quality_rows, weight_rows

Say = Callable[..., str]
_MOST_PROMPT, _MOST_TEXT = 500, 2000  # characters of a question, and of an answer


def weight_details(say: Say, outcome: Outcome, width: int, plain: bool = False) -> list[Line]:
    """Every line of at most `width` cells; nothing where a trial looked at none of it."""
    result = outcome.result
    if result is None:
        return []
    quality = result.quality
    asked = quality is not None and (quality.probes is not None or bool(quality.answers))
    if result.quantised is None and not result.ladder and not asked:
        return []
    rows: list[Row] = []
    if result.quantised is not None:
        rows += weight_rows(say, result.quantised, outcome.verdict.metrics.get("average_bits"))
    if quality is not None:
        rows += quality_rows(say, quality)
    if result.ladder:
        rows.append(ladder_row(say, result.ladder))
    left = left_cells([*rows, (say("detail.kl_by_position"), "")], width)
    lines: list[Line] = [(Run(say("detail.weights.title"), "bronze"),)]
    lines += draw_table(rows, width, left)
    if quality is not None:
        lines += _by_position(say, quality, width, left, plain)
        lines += answer_lines(say, quality.answers, width)
    return lines


def _by_position(say: Say, quality: Quality, width: int, left: int, plain: bool) -> list[Line]:
    """KL along the text: a column for each run of positions, its scale in words beneath."""
    values = quality.kl_by_position
    if len(values) < 2 or quality.position_tokens < 1:
        return []
    lead = " " * (left + 2)
    room = max(width - len(lead), 8)
    name = draw_table([(say("detail.kl_by_position"), "")], width, left)[0][0]
    spark = draw_spark(values, room, _ink(values), plain)
    scale = say(
        "detail.kl_by_position.scale",
        top=plain_number(max(value for value in values)),
        step=quality.position_tokens,
        last=quality.position_tokens * len(values),
    )
    lines: list[Line] = [(name, *spark[0])]
    lines += [(Run(lead, "text"), *line) for line in spark[1:]]
    return lines + [(Run(lead, "text"), *line) for line in paragraph(scale, room, "dim")]


def _ink(values: Sequence[float]) -> Ink:
    return "silver" if all(isfinite(value) for value in values) else "danger"


def answer_lines(say: Say, answers: Sequence[Answer], width: int) -> list[Line]:
    """Each question, then the full model's text and this build's, the parting marked."""
    if not answers:
        return []
    words = AnswerWords(say("detail.answer.full"), say("detail.answer.build"), say("answer.end"))
    lines: list[Line] = [(), (Run(say("detail.answers"), "bronze"),)]
    for number, answer in enumerate(answers, 1):
        asked = clean(answer.prompt, _MOST_PROMPT, one_line=True)
        lines += paragraph(
            say("detail.answer.prompt", number=number, prompt=asked), width, "strong"
        )
        told = say("detail.answer.same")
        if answer.differs is not None:
            told = say("detail.answer.differs", token=answer.differs + 1)
        lines += paragraph(told, width, "dim" if answer.differs is None else "wall")
        if answer.differs is None and answer.full == answer.build:
            said = clean(answer.full, _MOST_TEXT, one_line=True)
            lines += [(Run("  ", "text"), *line) for line in paragraph(said, width - 2, "silver")]
        else:
            lines += draw_pair(answer.full, answer.build, words, width)
        lines.append(())
    return lines[:-1]
