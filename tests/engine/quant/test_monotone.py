"""The alarm for finer grids that came out worse."""

from __future__ import annotations

import math

import pytest

from engine.quant.monotone import Breach, Row, monotone
from engine.weight_format import ROW


def test_results_that_fall_with_bits_and_rise_with_groups_are_silent() -> None:
    rows = [
        Row("rtn", 8, ROW, 0.004),
        Row("rtn", 4, 32, 0.23),
        Row("rtn", 4, 64, 0.36),
        Row("rtn", 3, 32, 1.6),
        Row("rtn", 2, 32, 10.9),
    ]
    assert monotone(rows) == ()


@pytest.mark.parametrize(
    ("finer", "coarser"),
    [
        (Row("rtn", 4, 32, 0.5), Row("rtn", 4, 64, 0.3)),
        (Row("rtn", 4, 192, 0.5), Row("rtn", 4, ROW, 0.3)),
        (Row("rtn", 4, 64, 2.0), Row("rtn", 3, 64, 0.3)),
        (Row("rtn", 8, 32, 2.0), Row("rtn", 2, ROW, 0.3)),
    ],
)
def test_a_finer_grid_that_lost_more_is_told_with_what_it_lost_to(finer: Row, coarser: Row) -> None:
    assert monotone([coarser, finer]) == (Breach(finer, coarser),)
    assert monotone([finer, coarser]) == (Breach(finer, coarser),)


def test_of_several_that_did_better_the_best_is_named() -> None:
    finer, good, best = Row("g", 4, 32, 0.9), Row("g", 4, 64, 0.5), Row("g", 3, 96, 0.4)
    assert Breach(finer, best) in monotone([good, finer, best])


def test_more_bits_in_wider_groups_cannot_be_compared() -> None:
    assert monotone([Row("rtn", 8, ROW, 1.0), Row("rtn", 4, 32, 0.2)]) == ()


def test_other_kinds_are_not_compared() -> None:
    assert monotone([Row("rtn", 4, 32, 0.5), Row("gptq", 3, 64, 0.3)]) == ()


def test_the_same_grid_twice_is_no_breach() -> None:
    assert monotone([Row("rtn", 4, 32, 0.5), Row("rtn", 4, 32, 0.3)]) == ()


def test_what_codes_alone_can_move_is_no_breach() -> None:
    assert monotone([Row("g", 8, 32, 0.0041), Row("g", 8, 64, 0.0040)]) == ()
    assert monotone([Row("g", 4, 32, 0.302), Row("g", 4, 64, 0.300)]) == ()


def test_a_result_that_is_no_number_loses_to_every_coarser_one_and_beats_none() -> None:
    broken = Row("g", 4, 32, math.nan)
    coarse = Row("g", 4, 64, 9.0)
    assert [breach.coarser for breach in monotone([coarse, broken])] == [coarse]
    assert monotone([Row("g", 4, 64, math.nan), Row("g", 4, 32, 0.3)]) == ()
