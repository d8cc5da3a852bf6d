"""Sealed guesses: read as typed, scored as ratios."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from game.rules.guess import GuessError, check_guess, parse_guess, score
from story.schema import Guess

DIAL = Guess(kind="dial", metric="decode_cost_ratio", low=1, high=300, close=1.5)
CHOICE = Guess(
    kind="choice", metric="bottleneck", choices=("compute", "bandwidth", "launch overhead")
)
on_the_dial = st.floats(min_value=1, max_value=300)


@pytest.mark.parametrize(
    ("guess", "truth", "factor", "close"),
    [(18, 36, 2.0, False), (36, 18, 2.0, False), (20, 30, 1.5, True), (30, 30, 1.0, True)],
)
def test_the_error_of_a_dial_is_a_ratio_either_way(
    guess: float, truth: float, factor: float, close: bool
) -> None:
    scored = score(guess, truth, DIAL)
    assert scored.factor == pytest.approx(factor) and scored.close is close
    assert scored.truth == truth and isinstance(scored.value, float)


@given(on_the_dial, on_the_dial)
def test_a_factor_is_at_least_one_and_the_distance_on_a_logarithmic_scale(
    guess: float, truth: float
) -> None:
    factor = score(guess, truth, DIAL).factor
    assert factor is not None and factor >= 1
    assert math.log(factor) == pytest.approx(abs(math.log(guess) - math.log(truth)), abs=1e-9)


@pytest.mark.parametrize("truth", [None, math.nan, math.inf, 0.0, -3.0, "bandwidth"])
def test_a_truth_that_no_ratio_can_be_taken_to_leaves_a_dial_unscored(
    truth: float | str | None,
) -> None:
    scored = score(18.0, truth, DIAL)
    assert (scored.truth, scored.factor, scored.close) == (None, None, None)


def test_choices_are_right_or_wrong() -> None:
    assert score("bandwidth", "bandwidth", CHOICE).close is True
    wrong = score("compute", "bandwidth", CHOICE)
    assert (wrong.close, wrong.factor, wrong.truth) == (False, 0.0, "bandwidth")
    assert score("compute", None, CHOICE).close is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("18", 18.0), ("18x", 18.0), (" 18 × ", 18.0), ("1.8e1", 18.0), ("18倍", 18.0), ("1.", 1.0)],
)
def test_numbers_are_read_with_or_without_a_times_sign(text: str, value: float) -> None:
    assert parse_guess(text, DIAL) == value


MEGABYTES = Guess(kind="dial", metric="kv_request_mb", low=1, high=10_000)
PERCENT = Guess(kind="dial", metric="reference_use", low=1, high=100)


@pytest.mark.parametrize(
    ("text", "rule", "value"),
    [
        ("47", MEGABYTES, 47.0),
        ("47 MB", MEGABYTES, 47.0),
        ("4.7e1mb", MEGABYTES, 47.0),
        ("47兆", MEGABYTES, 47.0),
        ("1,024 MB", MEGABYTES, 1024.0),
        ("40%", PERCENT, 40.0),
        ("40 ％", PERCENT, 40.0),
        ("40 percent", PERCENT, 40.0),
    ],
)
def test_a_dials_own_unit_may_be_written_after_the_number(
    text: str, rule: Guess, value: float
) -> None:
    assert parse_guess(text, rule) == value


@pytest.mark.parametrize(
    ("text", "rule", "example"),
    [
        ("47 GB", MEGABYTES, "18 or 18 MB"),
        ("47x", MEGABYTES, "18 or 18 MB"),
        ("40 MB", PERCENT, "18 or 18%"),
        ("18 MB", DIAL, "18 or 18x"),
        ("1,02", MEGABYTES, "1 to 10000"),
        ("1,0,24", MEGABYTES, "1 to 10000"),
        ("20000 MB", MEGABYTES, "1 to 10000"),
    ],
)
def test_a_number_in_another_unit_is_not_taken_for_one_in_this(
    text: str, rule: Guess, example: str
) -> None:
    with pytest.raises(GuessError, match=example):
        parse_guess(text, rule)


@pytest.mark.parametrize(
    "text", ["", "x", "18y", "eighteen", "0", "301", "-5", "1e999", "nan", "inf", "18 19", "1_0"]
)
def test_what_is_not_on_the_dial_is_told_what_is(text: str) -> None:
    with pytest.raises(GuessError, match="a number from 1 to 300"):
        parse_guess(text, DIAL)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("bandwidth", "bandwidth"),
        ("Bandwidth", "bandwidth"),
        ("b", "bandwidth"),
        ("B", "bandwidth"),
        ("2", "bandwidth"),
        ("launch_overhead", "launch overhead"),
        ("c", "launch overhead"),
    ],
)
def test_a_choice_is_read_by_id_letter_or_number(text: str, choice: str) -> None:
    assert parse_guess(text, CHOICE) == choice


@pytest.mark.parametrize(
    ("text", "nearest"), [("bandwith", "bandwidth"), ("d", "bandwidth"), ("0", "")]
)
def test_what_is_no_choice_is_told_the_choices(text: str, nearest: str) -> None:
    with pytest.raises(GuessError, match=f"c = launch overhead.*nearest: {nearest}"):
        parse_guess(text, CHOICE)


@pytest.mark.parametrize(
    ("guess", "rule"),
    [(True, DIAL), ("18", DIAL), (math.nan, DIAL), (0.5, DIAL), (1, CHOICE), ("x", CHOICE)],
)
def test_a_guess_of_the_wrong_kind_is_refused(guess: float | str, rule: Guess) -> None:
    with pytest.raises(GuessError, match="legal"):
        check_guess(guess, rule)


@given(st.text(max_size=12))
def test_any_text_is_a_guess_or_a_guess_error(text: str) -> None:
    for rule in (DIAL, CHOICE):
        try:
            value = parse_guess(text, rule)
        except GuessError:
            continue
        assert check_guess(value, rule) == value
