"""Text wrapped, clipped and padded by cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from game.widgets.cells import clip, graphemes, pad, pad_left, wrap

prose = st.text("ab cde,.!?中文字，。「」（）x1 ", max_size=80)


@given(prose, st.integers(4, 40))
def test_no_line_is_wider_than_its_width_and_no_sign_is_lost(text: str, width: int) -> None:
    lines = wrap(text, width)
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_chinese_breaks_between_characters_and_latin_between_words() -> None:
    assert wrap("推理如电", 4) == ["推理", "如电"]
    assert wrap("prefill reads once", 8) == ["prefill", "reads", "once"]
    assert wrap("一步 decode 读完", 8) == ["一步", "decode", "读完"]


def test_closing_marks_do_not_begin_a_line_nor_opening_marks_end_one() -> None:
    for width in range(6, 30):
        for line in wrap("「先猜，再量。」欠账自负，（不得）反悔！", width):
            assert line[0] not in "，。」）！" and line[-1] not in "「（"


def test_a_word_wider_than_the_line_is_cut() -> None:
    assert wrap("abcdefgh", 3) == ["abc", "def", "gh"]


def test_a_width_too_small_for_any_character_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        wrap("字", 1)


@given(prose, st.integers(0, 30))
def test_padding_gives_exactly_the_width(text: str, width: int) -> None:
    assert cell_len(pad(text, width)) == width
    assert cell_len(pad_left(text, width)) == width
    assert cell_len(clip(text, width)) <= width


def test_marks_stay_with_their_base() -> None:
    assert graphemes("e\u0301a") == ["e\u0301", "a"]
    assert graphemes("\U0001f469\u200d\U0001f52c!") == ["\U0001f469\u200d\U0001f52c", "!"]
