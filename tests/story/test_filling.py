"""Placeholders: only names are reachable, and nothing a text says can raise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from story.filling import bad_braces, fill, placeholders, show


class Secret:
    inner = "leaked"

    def __str__(self) -> str:
        return "plain"


@pytest.mark.parametrize(
    "text",
    ["{a.inner}", "{a[0]}", "{a.__class__.__mro__}", "{a!r}", "{0}", "{}", "{a:>9999999}",
     "{a:{b}}", "{A}", "{a b}", "{a"],
)  # fmt: skip
def test_nothing_but_a_name_is_reached(text: str) -> None:
    assert "leaked" not in fill(text, {"a": Secret(), "b": "9"})
    assert len(fill(text, {"a": Secret(), "b": "9"})) < 40
    assert bad_braces(text)


@given(st.text("ab {}:.", max_size=20), st.integers() | st.floats() | st.text(max_size=5))
def test_any_text_fills_without_raising(text: str, value: object) -> None:
    fill(text, {"a": value, "b": value})


@given(st.integers(-(10**9), 10**9), st.floats(-1e9, 1e9))
def test_forms_agree_with_str_format(whole: int, broken: float) -> None:
    text = "{{x}} {whole} {broken:.2f} {broken:.0%} {broken:,.1f} {whole:,}"
    expected = text.format(whole=whole, broken=broken)
    assert fill(text, {"whole": whole, "broken": broken}) == expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (18, "18"),
        (18.0, "18"),
        (34.27, "34.3"),
        (2048.0, "2,048"),
        (0.004163, "0.00416"),
        (0.00000123, "1.2e-06"),
        (0.0, "0"),
        (-3.0, "-3"),
        (float("nan"), "nan"),
        (True, "True"),
        ("双摆", "双摆"),
    ],
)
def test_numbers_read_to_three_digits(value: object, shown: str) -> None:
    assert show(value) == shown


def test_foreign_values_are_cleaned() -> None:
    assert fill("hello {name}", {"name": "\x1b[31mMal\u202elory\x07"}) == "hello Mallory"


def test_a_value_is_not_filled_again() -> None:
    assert fill("{a}", {"a": "{b}", "b": "x"}) == "{b}"


def test_an_absent_value_stays_visible() -> None:
    assert fill("{a} and {b:.1f}", {"a": 1}) == "1 and {b:.1f}"


def test_a_number_form_on_a_word_shows_the_word() -> None:
    assert fill("{a:.1f}", {"a": "word"}) == "word"
    assert fill("{a:d}", {"a": 2.6}) == "3"
    assert fill("{a:d}", {"a": float("nan")}) == "nan"


def test_placeholders_are_listed_once_in_order() -> None:
    assert placeholders("{b} {a:.1f} {{c}} {b} {d.e}") == ("b", "a")


@pytest.mark.parametrize("text", ["plain", "{a}", "{a:.1f}", "{{literal}}", "{a}{b:,}"])
def test_good_braces_are_not_blamed(text: str) -> None:
    assert bad_braces(text) == ()
