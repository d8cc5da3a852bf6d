"""Words by their fate: told by marks as well as by ink, whatever is in the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.draft_report import DraftedText, Fate, Piece
from game.widgets.drafted_words import MARKS, draw_words, marked, text_head
from game.widgets.ink import Line, Run, cells, content, plain

PIECES = (
    Piece("Once", "plain"),
    Piece(" upon a", "accepted"),
    Piece(" day", "rejected"),
    Piece(" time", "corrected"),
    Piece(", far off", "accepted"),
    Piece(" there", "added"),
)


def text_of(lines: Sequence[Line]) -> str:
    return "\n".join(plain(line) for line in lines)


def test_every_fate_has_its_marks_and_ink() -> None:
    assert set(MARKS) == set(get_args(Fate))
    assert marked(PIECES) == (
        Run("<Once>", "dim"),
        Run(" upon a", "silver"),
        Run(" [day]", "danger"),
        Run(" <time>", "bronze"),
        Run(", far off", "silver"),
        Run(" <there>", "bronze"),
    )


def test_what_stood_is_the_only_fate_without_marks() -> None:
    """So that it can be told where there are no colours."""
    bare = [fate for fate, (before, after, _) in MARKS.items() if not before and not after]
    assert bare == ["accepted"]


def test_wrapping_keeps_each_sign_in_its_ink() -> None:
    lines = draw_words(PIECES, 12)
    assert text_of(lines) == "<Once> upon\na [day]\n<time>, far\noff <there>"
    assert lines[1] == (Run("a", "silver"), Run(" [day]", "danger"))
    assert lines[2] == (Run("<time>", "bronze"), Run(", far", "silver"))


def test_ends_of_lines_are_blanks_and_blanks_alone_have_marks_where_they_fell() -> None:
    pieces = (
        Piece("def f(x):\n", "accepted"), Piece("\n   ", "added"), Piece("\t\n", "rejected"),
        Piece("return  x", "accepted"), Piece("", "corrected"),
    )  # fmt: skip
    assert text_of([marked(pieces)]) == "def f(x): [ ]return x"


def test_brackets_of_the_text_are_neither_parsed_nor_escaped() -> None:
    pieces = (Piece("a[0] [bold]x[/bold] <b>", "accepted"), Piece("[1]", "rejected"))
    (line,) = draw_words(pieces, 60)
    assert plain(line) == "a[0] [bold]x[/bold] <b>[[1]]"
    assert line[0].ink == "silver" and line[1] == Run("[[1]]", "danger")
    assert content([line]).plain == plain(line)


def test_control_bytes_are_gone_and_wide_signs_are_counted() -> None:
    pieces = (Piece("\x1b[2Jred\x07", "accepted"), Piece("从前有座山", "corrected"),
              Piece("\u202eabc", "rejected"))  # fmt: skip
    lines = draw_words(pieces, 8)
    assert all(cells(line) <= 8 for line in lines)
    whole = "".join(plain(line) for line in lines)
    assert whole == "red<从前有座山>[abc]"


@pytest.mark.parametrize("rows", [0, 1, 2, 3])
def test_what_is_cut_ends_in_a_mark(rows: int) -> None:
    whole, cut = draw_words(PIECES, 12), draw_words(PIECES, 12, rows)
    assert len(cut) == rows
    assert cut[: rows - 1] == whole[: rows - 1] if rows else True
    assert not rows or plain(cut[-1]).endswith(" ...")
    assert all(cells(line) <= 12 for line in cut)
    assert draw_words(PIECES, 12, 4) == whole


def test_the_head_names_the_kind_and_what_stood() -> None:
    def say(key: str, **values: object) -> str:
        return f"{key} {values}"

    head = text_head(say, DraftedText("code", "p", (), 40, 33, 10, 48))
    assert "detail.draft.kind.code" in head and "'accepted': 33" in head and "'drafted': 40" in head
    strange = text_head(say, DraftedText("\x1b[31mverse\n" + "x" * 99, "p", (), 1, 0, 1, 2))
    assert "kind.verse" not in strange and "verse xxx" in strange and "\x1b" not in strange
    assert len(strange) < 120


fates = st.sampled_from(list(MARKS))
texts = st.text(max_size=30) | st.text("从前 有座a[]<>\n", max_size=30)
answers = st.lists(st.builds(Piece, texts, fates), max_size=12)


@given(answers, st.sampled_from([8, 36, 76]), st.none() | st.integers(0, 4))
def test_lines_fit_and_lose_nothing_but_blanks(
    pieces: list[Piece], width: int, rows: int | None
) -> None:
    lines = draw_words(pieces, width, rows)
    assert all(cells(line) <= width for line in lines)
    if rows is None:
        kept = "".join("".join(plain(line).split()) for line in lines)
        assert kept == "".join(plain(marked(pieces)).split())
    else:
        assert len(lines) <= rows
