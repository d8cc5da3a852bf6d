"""Typed text: nothing on the page moves while it appears."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from game.widgets.typesetting import Typing, length, pages, typed

prose = st.text("abc de，。中文字 ", min_size=1, max_size=120)


@given(prose, st.integers(6, 30), st.integers(1, 5))
def test_each_sign_appears_where_it_will_stay(text: str, width: int, rows: int) -> None:
    for page in pages(text, width, rows):
        assert len(page) <= rows
        for count in range(length(page) + 1):
            shown = typed(page, count)
            assert len(shown) == len(page)
            assert all(whole.startswith(part) for whole, part in zip(page, shown, strict=True))
            assert sum(len(part) for part in shown) == count
        assert tuple(typed(page, length(page))) == page


def test_a_page_is_completed_then_turned_and_the_last_is_not() -> None:
    typing = Typing(pages("one two three four", 5, 2))
    assert len(typing.sheets) == 2 and not typing.page_done
    typing.advance(2.5)
    assert typing.visible() == ["on", ""]
    typing.complete_page()
    assert typing.page_done and not typing.done
    assert typing.next_page() and typing.visible() == ["", ""]
    typing.complete_page()
    assert typing.done and not typing.next_page()


@given(prose, prose, st.floats(0, 1))
def test_the_same_line_in_another_language_is_as_far_as_before(
    first: str, second: str, share: float
) -> None:
    typing = Typing(pages(first, 10, 3))
    for _ in range(round(share * (len(typing.sheets) - 1))):
        typing.complete_page()
        typing.next_page()
    typing.advance(share * 10)
    done = typing.done
    typing.set_again(pages(second, 10, 3))
    assert typing.done or not done, "what was complete stays complete"
    assert 0 <= typing.page < len(typing.sheets)
    assert 0 <= typing.shown <= length(typing.sheets[typing.page])
