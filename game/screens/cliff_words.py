"""A fall from the cliff in words: what was asked, what the full model said, what the build did."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.cells import cell_len

from engine.clean import clean
from engine.quality_report import Answer
from game.rules.weight_facts import chosen_answer
from game.widgets.cells import clip, pad, wrap
from game.widgets.ink import Ink, Line, Run

Say = Callable[..., str]
_MOST = 600  # characters of any one text


def babble_lines(say: Say, answers: Sequence[Answer], width: int, rows: int) -> list[Line]:
    """The texts under one another, each on at most `rows` lines; nothing where none was asked."""
    if not answers:
        return []
    answer = chosen_answer(tuple(answers))
    told: tuple[tuple[str, str, Ink], ...] = (
        (say("verdict.fall.asked"), answer.prompt, "dim"),
        (say("verdict.fall.full"), answer.full, "silver"),
        (say("verdict.fall.build"), answer.build, "danger"),
    )
    left = max(cell_len(name) for name, _, _ in told)
    lines: list[Line] = []
    for name, text, ink in told:
        shown = clean(text, _MOST, one_line=True) or say("answer.end")
        for number, words in enumerate(_cut(shown, max(width - left - 2, 8), rows)):
            head = pad(name if number == 0 else "", left)
            lines.append((Run(f"{head}  ", "text"), Run(words, ink)))
    return lines


def _cut(text: str, width: int, rows: int) -> list[str]:
    """`text` wrapped to `rows` lines; what is cut ends in "..."."""
    lines = wrap(text, width)
    if len(lines) <= rows:
        return lines
    return [*lines[: rows - 1], clip(f"{lines[rows - 1]} {' ' * width}", width)]
