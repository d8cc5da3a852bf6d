"""The Furnace and the Precision Wall, told for every play that can come: nothing missing, nothing
twice, nothing too wide."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import pytest
from weight_plays import BEFORE, Play, cliff_plays, falls, furnace_plays

from story.facts import derive, quote, tell
from story.lint_words import cells
from story.loader import load_stages, load_text
from story.schema import LANGUAGES, Language, Line, SceneName

BOX = 216
"""Cells of a line that the dialogue box holds at 80 columns."""

FURNACE_REASONS = {
    "unpressed", "eight", "smooth", "rulers", "width", "unpacked", "short", "never", "too_late",
    "still_dear", "narrow", "nearest", "singular", "loose_gptq", "loose",
}  # fmt: skip
CLIFF_REASONS = {
    "full", "eight", "heavy_embedding", "heavy_scales", "rounded", "thin", "narrow_cache", "coarse",
    "forgot",
}  # fmt: skip
Plays = Callable[[str], Iterator[Play]]

STRIDE = 13
"""Every so many-th play is told: prime, so that all values meet one another in turn."""


def some(plays: Iterator[Play]) -> Iterator[Play]:
    return itertools.islice(plays, 0, None, STRIDE)


def told(stage: str, scene: SceneName, play: Play, language: Language = "en") -> tuple[Line, ...]:
    return tell(load_text(stage, language).scenes[scene], play)


def names(lines: tuple[Line, ...]) -> list[str]:
    return [line.id.rsplit(".", 1)[-1] for line in lines]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_failed_furnace_says_once_why(language: Language) -> None:
    for play in some(furnace_plays("fail")):
        said = names(told("furnace", "failed", play, language))
        assert len(FURNACE_REASONS & set(said)) == 1, (said, play)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_failed_build_of_the_precision_wall_is_told_once_why(language: Language) -> None:
    for play in some(cliff_plays("fail")):
        said = names(told("precision", "failed", play, language))
        assert len(CLIFF_REASONS & set(said)) == 1, (said, play)


@pytest.mark.parametrize(("verdict", "scene"), [("pass", "passed"), ("fail", "failed")])
def test_every_guess_at_the_furnace_is_answered_once(verdict: str, scene: SceneName) -> None:
    """By its distance where four bits were measured, else by what it still waits for."""
    for play in some(furnace_plays(verdict)):
        said = names(told("furnace", scene, play))
        answers = [one for one in said if one in ("close", "off", "far", "wild", "open_bet")]
        assert len(answers) == 1, (said, play)
        assert (answers == ["open_bet"]) is ("truth" not in play)


@pytest.mark.parametrize(("verdict", "scene"), [("pass", "passed"), ("fail", "failed")])
def test_every_guess_at_the_edge_is_answered_once(verdict: str, scene: SceneName) -> None:
    for play in some(cliff_plays(verdict)):
        said = names(told("precision", scene, play))
        answers = [one for one in said if one.startswith(("right", "wrong"))]
        assert len(answers) == 1 and (answers[0] == "right") is play["guess_close"], (said, play)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_fall_quotes_what_the_build_said(language: Language) -> None:
    for play in falls():
        lines = told("precision", "scar", play, language)
        spoken = " ".join(line.text for line in lines)
        assert play["babble"] in spoken and play["asked"] in spoken
        said = names(lines)
        assert ("early" in said) is not play["met"]
        first = play["falls"] == 1
        assert ("listening" in said, "again" in said) == (first, not first)


@pytest.mark.parametrize(
    ("stage", "plays"), [("furnace", furnace_plays), ("precision", cliff_plays)]
)
def test_an_insight_has_numbers_in_it_and_ends_with_the_way_on(stage: str, plays: Plays) -> None:
    for play in some(plays("pass")):
        lines = told(stage, "insight", {**play, "met": True, "scar": stage == "precision"})
        assert 5 <= len(lines) <= 10, play
        assert sum(bool(re.search(r"\d", line.text)) for line in lines) >= 3
        assert lines[-1].who == "narrator"


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_hole_and_no_overflow_in_any_play(language: Language) -> None:
    scenes: list[tuple[str, SceneName, Play]] = [("precision", "scar", play) for play in falls()]
    for verdict, scene in (("pass", "passed"), ("fail", "failed")):
        scenes += [("furnace", scene, play) for play in furnace_plays(verdict)]
        scenes += [("precision", scene, play) for play in cliff_plays(verdict)]
    texts: set[str] = set()
    for stage, scene, play in scenes[::131]:
        for name in (scene, "arrival", "forge", "insight"):
            for line in told(stage, name, derive(play), language):
                texts |= {line.text, *(reply.answer for reply in line.choices)}
    assert len(texts) > 100
    for text in texts:
        assert "{" not in text and "}" not in text
        assert cells(text) <= BOX, text


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_descent_dares_and_says_how(language: Language) -> None:
    play = next(cliff_plays("pass"))
    lines = told("precision", "descent", {**play, "met": True, "scar": False}, language)
    assert {"wall", "elder"} <= {line.who for line in lines}
    assert any("2" in line.text for line in lines)  # the width to go to


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_undecided_trial_is_told_by_elder_and_wall(language: Language) -> None:
    for verdict in ("inconclusive", "invalid"):
        for stage in ("furnace", "precision"):
            lines = told(stage, "undecided", {**BEFORE, "verdict": verdict}, language)
            assert {line.who for line in lines} == {"elder", "wall"} and len(lines) == 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_formulas_show_the_players_own_numbers(language: Language) -> None:
    shown = quote(load_text("furnace", language).formula, next(furnace_plays("pass")))
    assert shown is not None and "35" in shown and "0.5" in shown
    shown = quote(load_text("precision", language).formula, next(cliff_plays("pass")))
    assert shown is not None and "1.63" in shown and "11.4" in shown


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_tale_s_seventy_billion_weights_are_put_right(language: Language) -> None:
    """70e9 weights: 16 bits are 140 GB, 4 bits 35 GB; 350 GB in 16 bits are 175e9 weights."""
    told_right = load_text("precision", language).correction
    for weights, bits in ((70, 16), (70, 4)):
        assert str(weights * bits // 8) in told_right
    assert str(350 * 8 // 16) in told_right


def test_the_precision_wall_demands_the_second_scar() -> None:
    halls = {stage.id: stage for stage in load_stages()}
    assert halls["furnace"].open and halls["furnace"].scar is None
    assert halls["precision"].open and halls["precision"].scar == "cliff"
    assert halls["precision"].ladder == (8, 4, 3, 2) and halls["precision"].probes
