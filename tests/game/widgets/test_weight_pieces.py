"""The Furnace's and the Precision Wall's pieces in the game's own words: each view at each size."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import msgspec
import pytest
from canned_trials import make_result
from known_machines import SMOLLM2

from engine.config import WeightsConfig
from engine.price import Price
from engine.quality_report import Quality, Rung
from engine.quantised import Histogram, LayerError
from game.measured import Measured, Pressing
from game.widgets.cliff_piece import CliffPiece
from game.widgets.footholds import Foothold
from game.widgets.furnace_piece import FurnacePiece
from game.widgets.hall_piece import Frame, Say
from game.widgets.ink import Line, cells, plain
from game.widgets.kept import keeping_of
from story.loader import load_interface_texts
from story.schema import Language

SIZES = [(56, 8), (76, 10), (76, 14), (116, 13), (116, 26), (196, 24)]
LANGUAGES = ("en", "zh")
LIES = Histogram(28, "down", -0.5, 0.6, (1, 3, 9, 30, 9, 3, 1, 0), (0, 0, 28, 0, 28, 0, 0, 0))
ERRORS = tuple(
    LayerError(layer, name, 0.03 + 0.002 * layer)
    for layer in range(30)
    for name in ("qkv", "o", "gate_up", "down")
)
FULL_AND_FOUR = (
    WeightsConfig(),
    WeightsConfig(embedding=4),
    WeightsConfig(bits=8),
    WeightsConfig(bits=4, method="awq", group=32),
    WeightsConfig(bits=3, symmetric="on"),
    WeightsConfig(bits=2, group=-1, edges=8),
)
RUNGS = tuple(Rung(bits, kl, 0.5) for bits, kl in ((8, 0.005), (4, 0.36), (3, 1.63), (2, 11.4)))
FEET = (
    Foothold(8.1, 0.005, "missed"),
    Foothold(2.9, 11.2, "fallen"),
    Foothold(5.0, 0.29, "open"),
    Foothold(4.7, 0.117, "met"),
)
GOALS = {"average_bits": 5.0, "kl": 0.3}


def say_in(language: str) -> Say:
    text = load_interface_texts(cast(Language, language))

    def say(key: str, **values: object) -> str:
        return text[key].format(**values)

    return say


def frame_of(weights: WeightsConfig, pressing: Pressing | None = None) -> Frame:
    keeping = keeping_of(weights, SMOLLM2)
    price = cast(Price, type("Bytes", (), {"weights": keeping.elements * 5.6 / 8})())
    measured = Measured() if pressing is None else Measured(presses={"candidate": pressing})
    return Frame(measured=measured, prices={"candidate": price}, keeping=keeping, goals=GOALS)


Piece = FurnacePiece | CliffPiece
Draw = Callable[[int, int, bool], list[Line]]


def furnace(frame: Frame, language: str = "en") -> FurnacePiece:
    piece = FurnacePiece(say_in(language))
    piece.frame = frame
    return piece


def cliff(frame: Frame, language: str = "en") -> CliffPiece:
    piece = CliffPiece(say_in(language))
    piece.frame = frame
    return piece


def shown(draw: Draw, columns: int = 76, rows: int = 14) -> list[str]:
    return [plain(line) for line in draw(columns, rows, False)]


def fits(draw: Draw, simple: bool, high: bool = True) -> None:
    for columns, rows in SIZES:
        lines = draw(columns, rows, simple)
        widest = max(cells(line) for line in lines)
        assert widest <= columns, (columns, rows, widest)
        assert not high or len(lines) <= rows, (columns, rows, len(lines))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("simple", [False, True])
@pytest.mark.parametrize("weights", FULL_AND_FOUR)
def test_the_furnace_fits_its_sheet(weights: WeightsConfig, simple: bool, language: str) -> None:
    fits(furnace(frame_of(weights), language)._draw_press, simple)
    half = Pressing(46, 120, ERRORS[45], ERRORS[:46], LIES)
    for pressing in (half, replace(half, histogram=None), Pressing(120, 120, None, ERRORS, LIES)):
        piece = furnace(frame_of(weights, pressing), language)
        fits(piece._draw_press, simple)
        fits(piece._draw_heat, simple, high=False)
        for columns, rows in SIZES[1:]:
            assert len(piece._draw_heat(columns, rows, simple)) <= rows


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("simple", [False, True])
@pytest.mark.parametrize("weights", FULL_AND_FOUR)
def test_the_cliff_fits_its_sheet(weights: WeightsConfig, simple: bool, language: str) -> None:
    bare = frame_of(weights)
    quality = Quality(0.2, 0.8, 1.1, 2048, "x", (0.4, 0.3, 0.1, 0.2), 128)
    result = msgspec.structs.replace(make_result("pendulum", "pass"), quality=quality)
    for frame in (
        bare,
        replace(bare, veiled=True),
        replace(bare, footholds=FEET, rungs=RUNGS, result=result),
    ):
        fits(cliff(frame, language)._draw_cliff, simple)
        fits(cliff(frame, language)._draw_second, simple)


def test_before_anything_is_pressed_the_build_is_told_by_formula() -> None:
    said = shown(furnace(frame_of(WeightsConfig(bits=4, group=32, method="awq")))._draw_press)
    rows = {match[1]: match[2] for line in said if (match := re.match(r"(.+?)  +(\S+)", line))}
    assert rows["bits a weight"] == "4" and rows["levels of a group"] == "16"
    assert rows["weights a group"] == "32" and rows["method"] == "AWQ"
    assert rows["bits held, all included"] == "5.6" and rows["of 16-bit weights"] == "35"


def test_full_weights_are_said_to_be_full_and_have_no_grid() -> None:
    said = "\n".join(shown(furnace(frame_of(WeightsConfig()))._draw_press))
    assert "Nothing is pressed" in said and "levels" not in said


def test_what_is_on_the_press_is_named_with_its_progress_and_error() -> None:
    error = LayerError(11, "o", 0.075)
    pressing = Pressing(46, 120, error, (*ERRORS[:45], error), LIES)
    head, lies, *drawn = shown(furnace(frame_of(WeightsConfig(bits=4), pressing))._draw_press)
    assert "46 of 120" in head and "layer 12, o, error 7.5 %" in head
    assert "layer 29, down" in lies
    assert any("4 bits" in line for line in drawn) and any("16 bits" in line for line in drawn)


def test_a_finished_trial_names_the_worst_matrix_counted_from_one() -> None:
    pressing = Pressing(120, 120, None, ERRORS, LIES)
    piece = furnace(frame_of(WeightsConfig(bits=4), pressing))
    assert "layer 30, q, k, v, error 8.8 %" in shown(piece._draw_press)[0]
    assert piece.two_views
    assert not furnace(frame_of(WeightsConfig(bits=4))).two_views


def test_nothing_of_the_ladder_is_drawn_while_veiled() -> None:
    frame = replace(frame_of(WeightsConfig()), rungs=RUNGS, veiled=True)
    bare = replace(frame, rungs=())
    assert shown(cliff(frame)._draw_cliff) == shown(cliff(bare)._draw_cliff)
    assert "veiled" in shown(cliff(frame)._draw_cliff)[-1]
    assert "veiled" not in shown(cliff(replace(frame, veiled=False))._draw_cliff)[-1]


def test_the_last_foothold_is_told_in_figures_and_the_marks_in_words() -> None:
    frame = replace(frame_of(WeightsConfig(bits=4)), footholds=FEET, rungs=RUNGS)
    head, *_, legend = shown(cliff(frame)._draw_cliff, 116)
    assert "4.7 bits, KL 0.117, goals met" in head
    for words in ("o goals met", "x goals missed", "v fell", "? undecided", "( ) the last"):
        assert words in legend
