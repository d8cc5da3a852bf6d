"""No control byte and no escape survives `clean`; what is harmless does."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clean import clean

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""C0 and C1 by their code points, without newline and tab: stated apart from `unicodedata`."""

HOSTILE = st.text(
    alphabet=st.one_of(
        st.sampled_from("\x1b\x9b\x9c\x9d\x90\x07\\[]P^_X0;?1mHJ \n\r\t\u202e\u2066\u200b\x00\x7f"),
        st.characters(),
    ),
    max_size=60,
)


@given(HOSTILE)
def test_no_control_character_survives(text: str) -> None:
    assert not CONTROL.search(clean(text))
    assert not CONTROL.search(clean(text, one_line=True))
    assert "\n" not in clean(text, one_line=True)


@given(HOSTILE)
def test_nothing_that_reorders_the_line_survives(text: str) -> None:
    for char in clean(text):
        assert unicodedata.bidirectional(char) not in {
            *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        }


@given(HOSTILE)
def test_the_result_can_be_written_as_utf_8(text: str) -> None:
    clean(text).encode("utf-8")


@given(HOSTILE, st.one_of(st.none(), st.integers(0, 20)), st.booleans())
def test_cleaning_twice_is_cleaning_once(text: str, limit: int | None, one_line: bool) -> None:
    once = clean(text, limit, one_line)
    assert clean(once, limit, one_line) == once


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=40))
def test_letters_numbers_signs_stay_as_they_are(text: str) -> None:
    assert clean(text) == text


@given(HOSTILE, st.integers(1, 30))
def test_the_limit_holds_and_a_cut_is_shown(text: str, limit: int) -> None:
    whole, cut = clean(text), clean(text, limit=limit)
    assert len(cut) <= limit
    assert cut == whole if len(whole) <= limit else cut == whole[: limit - 1] + "…"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mC1", "C1"),
        ("\x1bPq#0;2;0;0;0\x1b\\sixel", "sixel"),
        ("\x1b(0line drawing", "line drawing"),
        ("\x1bcreset", "reset"),
        ("over\rwritten", "overwritten"),
        ("back\x08space", "backspace"),
        ("two\r\nlines\tand a tab", "two\nlines\tand a tab"),
        ("abc\u202edcba\u202c", "abcdcba"),
        ("延迟之壁 🙂 e\u0301", "延迟之壁 🙂 e\u0301"),
        ("cut short \x1b[1;31", "cut short 1;31"),
        ("\ud800", ""),
    ],
)
def test_known_attacks(text: str, left: str) -> None:
    assert clean(text) == left


def test_one_line_folds_every_white_space() -> None:
    assert clean("  a\n\n b\t\u2003c  ", one_line=True) == "a b c"
