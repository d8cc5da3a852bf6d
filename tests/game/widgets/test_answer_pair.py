"""Two texts side by side: where they part, and that every line fits."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from game.widgets.answer_pair import BESIDE_CELLS, AnswerWords, draw_pair, part
from game.widgets.ink import plain

WORDS = AnswerWords("full", "build", "end")


@pytest.mark.parametrize(
    ("own", "other", "marked"),
    [
        ("It is Paris, yes", "It is Pariah, no", "It is [Paris,] yes"),
        ("It is Pariah, no", "It is Paris, yes", "It is [Pariah,] no"),
        ("It is 42", "It is 42 and more", "It is 42 [end]"),
        ("It is 42 and more", "It is 42", "It is 42 [and] more"),
        ("巴黎在塞纳河上", "巴士在塞纳河上", "巴[黎]在塞纳河上"),
        ("", "abc", "[end]"),
        ("same", "same", "same"),
        ("42", "42nd", "[42]"),
    ],
)
def test_brackets_stand_round_the_word_that_parts(own: str, other: str, marked: str) -> None:
    assert part(own, other, "end").marked == marked


@pytest.mark.parametrize("width", [20, 61, BESIDE_CELLS - 1, BESIDE_CELLS, 116])
@pytest.mark.parametrize(
    "text", ["word " * 40, "词" * 90, "词ab " * 30, "x" * 300, "[b]x[/b] " * 9]
)
def test_every_line_fits_and_no_sign_is_lost(text: str, width: int) -> None:
    build = text[:-9] + "Z" + text[-9:]
    lines = [plain(line) for line in draw_pair(text, build, WORDS, width)]
    assert all(cell_len(line) <= width for line in lines)
    told = "".join("".join(lines).split())
    expected = "".join(f"{part(text.strip(), build.strip(), 'end').marked}".split())
    if width < BESIDE_CELLS:
        assert expected in told


def test_texts_stand_beside_each_other_only_where_there_is_room() -> None:
    beside = [plain(line) for line in draw_pair("a b", "a c", WORDS, BESIDE_CELLS)]
    stacked = [plain(line) for line in draw_pair("a b", "a c", WORDS, BESIDE_CELLS - 1)]
    assert len(beside) == 2 and "a [b]" in beside[1] and "a [c]" in beside[1]
    assert stacked == ["full", "  a [b]", "build", "  a [c]"]


def test_foreign_text_is_cleaned_and_kept_on_its_lines() -> None:
    lines = [plain(line) for line in draw_pair("a\x1b[2J\nb", "a b", WORDS, 40)]
    assert lines == ["full", "  a b", "build", "  a b"]
