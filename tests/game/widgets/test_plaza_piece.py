"""The Plaza's piece in the game's own words: each view at each size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import msgspec
import pytest
from canned_drafts import TEXTS, make_drafted

from engine.draft_report import DraftedText, DraftReport, Piece
from engine.trial import TrialResult
from game.widgets.hall_piece import Frame, Say
from game.widgets.ink import Line, cells, plain
from game.widgets.plaza_piece import PlazaPiece, _shared
from game.widgets.trial_points import TrialPoint
from story.loader import load_interface_texts
from story.schema import LANGUAGES, Language

SIZES = [(36, 3), (36, 10), (56, 8), (76, 4), (76, 9), (76, 14), (116, 13), (116, 26), (196, 24)]
POINTS = (
    TrialPoint("ngram", 8, 0.55, "missed", 0.083, 1.66, 3.0, 0.13),
    TrialPoint("exit", 4, 1.22, "open", 0.47, 2.0, 1.64, 0.4),
    # One step of four drafted tokens, 1.2 to verify; 1 + r + ... + r^4 = 3.3616 at r 0.8.
    TrialPoint("self4", 4, 1.53, "met", 0.617, 3.3616, 2.2, 5 / 11),
)
GOALS = {"tpot_ratio": 0.8, "lossless": 1.0}
FORMULA = Frame(goals=GOALS, draft_cost=0.27)
TRIED = Frame(goals=GOALS, draft_cost=0.27, drafts=POINTS, result=make_drafted())
FOREIGN = DraftedText(
    "\x1b[31mverse", "p",
    (Piece("\x1b[2Ja[0] [/bold] 从前有座山，山里有座庙" * 9, "accepted"), Piece("[x]", "rejected"),
     Piece("\u202e<y>\x00", "corrected")), 9, 4, 3, 12,
)  # fmt: skip

Draw = Callable[[int, int, bool], list[Line]]


def say_in(language: str) -> Say:
    text = load_interface_texts(cast(Language, language))

    def say(key: str, **values: object) -> str:
        return text[key].format(**values)

    return say


def plaza(frame: Frame, language: str = "en") -> PlazaPiece:
    piece = PlazaPiece(say_in(language))
    piece.frame = frame
    return piece


def shown(draw: Draw, columns: int = 76, rows: int = 14) -> list[str]:
    return [plain(line) for line in draw(columns, rows, False)]


def with_texts(*texts: DraftedText) -> TrialResult:
    return msgspec.structs.replace(make_drafted(), draft=DraftReport(None, texts))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("simple", [False, True])
@pytest.mark.parametrize("columns, rows", SIZES)
def test_both_views_fit_their_sheet(columns: int, rows: int, simple: bool, language: str) -> None:
    frames = (
        Frame(), FORMULA, replace(TRIED, veiled=True), replace(TRIED, drafts=POINTS[:1]), TRIED,
        replace(TRIED, result=with_texts(*(FOREIGN,) * 3)),
        replace(TRIED, result=with_texts(FOREIGN)),
    )  # fmt: skip
    for frame in frames:
        piece = plaza(frame, language)
        for draw in (piece._draw_speeds, piece._draw_texts):
            lines = draw(columns, rows, simple)
            assert len(lines) <= rows
            assert all(cells(line) <= columns for line in lines)


def test_before_any_trial_the_formula_stands_there_and_says_so() -> None:
    head, *chart, note = shown(plaza(FORMULA)._draw_speeds)
    assert "No draft was tried yet" in head and "not measured" in head
    for chance in ("r 0.3", "r 0.6", "r 0.9"):
        assert sum(chance in line for line in chart) == 1
    assert "0.27 steps" in note and "chance that a token stands" in note
    assert any("no gain" in line for line in chart) and any("goal 1.25" in line for line in chart)
    assert "at best" in shown(plaza(replace(FORMULA, draft_cost=None))._draw_speeds)[-1]


def test_nothing_measured_is_drawn_while_veiled() -> None:
    veiled, bare = plaza(replace(TRIED, veiled=True)), plaza(FORMULA)
    assert shown(veiled._draw_speeds)[1:] == shown(bare._draw_speeds)[1:]
    assert "not sealed" in shown(veiled._draw_speeds)[0]
    assert not veiled.two_views and veiled._texts() == ()
    assert shown(plaza(replace(FORMULA, veiled=True))._draw_speeds) == shown(bare._draw_speeds)


def test_the_newest_trial_is_told_in_figures_and_the_marks_in_words() -> None:
    head, *chart, legend, note = shown(plaza(TRIED)._draw_speeds)
    assert "Trials 3." in head and "itself, 4 bits, length 4, 1.5 x, goals met" in head
    assert "62 % stood" in head
    for words in ("o goals met", "x goals missed", "? undecided", "( ) the last"):
        assert words in legend
    assert "r 0.8, 0.25 steps a token, verifying 1.2" in note
    assert any("(o)" in line for line in chart) and not any("r 0.9" in line for line in chart)


def test_a_trial_without_figures_leaves_the_formula_alone() -> None:
    bare = replace(TRIED, drafts=(TrialPoint("self4", 4, 1.5, "met"),))
    head, *chart, note = shown(plaza(bare)._draw_speeds)
    assert "stood" not in head and "chance that a token stands" in note
    assert any("r 0.9" in line for line in chart) and any("(o)" in line for line in chart)


def test_each_text_stands_under_its_kind_with_its_marks_explained() -> None:
    piece = plaza(TRIED)
    assert piece.two_views and not plaza(FORMULA).two_views
    lines = shown(piece._draw_texts)
    for head in ("a story: 24 of 48 stood", "code: 33 of 40 stood", "a list: 34 of 36 stood"):
        assert head in lines
    text = " ".join(lines)
    assert "[alone] <on> the edge" in text and "numbers[0]" in text and "[struck]: fell" in text


def test_foreign_text_is_cleaned_and_shown_as_it_is() -> None:
    lines = shown(plaza(replace(TRIED, result=with_texts(FOREIGN)))._draw_texts, 76, 40)
    assert lines[0] == "verse: 4 of 9 stood"
    text = "".join(lines)
    assert "[/bold]" in text and "[[x]]" in text and "<<y>>" in text
    assert all(sign.isprintable() for sign in text)


def test_few_rows_are_shared_and_what_is_cut_says_so() -> None:
    lines = shown(plaza(TRIED)._draw_texts, 56, 9)
    assert len(lines) <= 9 and sum("stood" in line for line in lines) == 3
    assert any(line.endswith(" ...") for line in lines)
    assert len(shown(plaza(TRIED)._draw_texts, 56, 3)) == 3
    assert [_shared(rows, [1, 5, 3]) for rows in (0, 3, 6, 7, 20)] == [
        [0, 0, 0], [1, 1, 1], [1, 3, 2], [1, 3, 3], [1, 5, 3],
    ]  # fmt: skip


def test_texts_of_a_trial_are_those_of_its_report() -> None:
    assert plaza(TRIED)._texts() == TEXTS
    without = msgspec.structs.replace(make_drafted(), draft=None)
    assert plaza(replace(TRIED, result=without))._texts() == ()
