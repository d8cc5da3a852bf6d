"""The Plaza of Two Gates, told for every play that can come: nothing missing, nothing twice,
nothing too wide."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
from draft_plays import BEFORE, KINDS, MACHINE, Play, faulty_plays, idle_play, plaza_plays

from story.facts import derive, quote, tell
from story.lint_words import cells
from story.loader import load_stages, load_text
from story.schema import LANGUAGES, Language, Line, SceneName

BOX = 216
"""Cells of a line that the dialogue box holds at 80 columns."""

STRIDE = 7
"""Every so many-th play is told: prime to the numbers of values, so that all meet in turn."""

REASONS = {"idle", "lookup", "long", "dear", "seldom", "near"}
PROOFS = {"proof", "proof_ties", "proof_drawn"}
ANSWERS = {"close", "off", "far", "wild", "nothing", "open_bet"}


def some(plays: Iterator[Play]) -> Iterator[Play]:
    return itertools.islice(plays, 0, None, STRIDE)


def told(scene: SceneName, play: Play, language: Language = "en") -> tuple[Line, ...]:
    return tell(load_text("plaza", language).scenes[scene], derive(play))


def names(lines: tuple[Line, ...]) -> list[str]:
    return [line.id.rsplit(".", 1)[-1] for line in lines]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_slow_draft_is_told_once_why(language: Language) -> None:
    for play in some(plaza_plays("fail")):
        said = names(told("failed", play, language))
        assert len(REASONS & set(said)) == 1, (said, play)
        slower = play["tpot_ratio"] > 1  # type: ignore[operator]
        assert ("lost" in said, "short" in said) == (slower, not slower)
    assert "idle" in names(told("failed", idle_play(), language))


@pytest.mark.parametrize("language", LANGUAGES)
def test_text_that_is_not_the_models_is_a_fault_whatever_the_speed(language: Language) -> None:
    for play in some(itertools.chain(faulty_plays(), plaza_plays("fail"))):
        said = set(names(told("failed", play, language)))
        assert ("fault_what" in said) is not play["lossless"], play
        faults = {"fault", "fault_too", "fault_drawn"} & said
        assert len(faults) == (not play["lossless"]), (said, play)
        if faults:
            assert (faults == {"fault_drawn"}) is (play["temperature"] != 0)


def test_a_pass_names_its_draft_and_its_proof_once() -> None:
    for play in some(plaza_plays("pass")):
        said = names(told("passed", play))
        assert [one for one in said if one in KINDS] == [play["draft_kind"]]
        (proof,) = PROOFS & set(said)
        if play["temperature"]:
            assert proof == "proof_drawn" and "warm" in said
        else:
            assert (proof == "proof_ties") is (play["near_ties"] != 0)  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(("verdict", "scene"), [("pass", "passed"), ("fail", "failed")])
def test_every_guess_is_answered_once_by_the_wall(verdict: str, scene: SceneName) -> None:
    for play in some(plaza_plays(verdict)):
        lines = told(scene, play)
        answers = [line for line in lines if line.id.rsplit(".", 1)[-1] in ANSWERS]
        if verdict == "pass" and "truth" not in play:
            continue  # nothing stood: such a build is never quick enough
        assert len(answers) == 1 and answers[0].who == "wall", (names(lines), play)
        if "truth" in play:
            assert f"{play['truth']:.0%}" in answers[0].text
    assert "open_bet" in names(told("failed", idle_play()))


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_hole_and_no_overflow_in_any_play(language: Language) -> None:
    scenes: list[tuple[SceneName, Play]] = [("failed", idle_play())]
    scenes += [("passed", play) for play in plaza_plays("pass")][::31]
    scenes += [("failed", play) for play in plaza_plays("fail")][::31]
    scenes += [("failed", play) for play in faulty_plays()][::31]
    texts: set[str] = set()
    for scene, play in scenes:
        for name in (scene, "arrival", "forge", "insight"):
            for line in told(name, play, language):
                texts |= {line.text, *(reply.answer for reply in line.choices)}
    assert len(texts) > 100
    for text in texts:
        assert "{" not in text and "}" not in text
        assert cells(text) <= BOX, text


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_forge_says_what_the_build_would_read(language: Language) -> None:
    for kind in ("none", *KINDS):
        play = {**BEFORE, **MACHINE, "draft_kind": kind, "guess": 0.5, "guess_word": "0.5"}
        said = names(told("forge", play, language))
        expected = {"none": "idle", "ngram": "lookup"}.get(kind, "dear")
        assert {"idle", "lookup", "cheap", "dear"} & set(said) == {expected}
        assert "temperature" in said


def test_an_insight_has_numbers_in_it_and_ends_with_the_way_on() -> None:
    for play in some(plaza_plays("pass")):
        lines = told("insight", {**play, "met": True})
        assert sum(bool(re.search(r"\d", line.text)) for line in lines) >= 3
        assert lines[-1].who == "narrator"


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_undecided_trial_is_told_by_elder_and_wall(language: Language) -> None:
    for verdict in ("inconclusive", "invalid"):
        lines = told("undecided", {**BEFORE, "verdict": verdict}, language)
        assert {line.who for line in lines} == {"elder", "wall"} and len(lines) == 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_formula_shows_the_players_own_numbers(language: Language) -> None:
    play = next(play for play in plaza_plays("pass") if play["draft_kind"] == "self4")
    shown = quote(load_text("plaza", language).formula, play)
    assert shown is not None and "35%" in shown and "1.55" in shown and "2.5" in shown


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_tale_s_gain_is_put_right(language: Language) -> None:
    """1/(1-r) at r = 0.8 is 5; four words at c = 0.25, v = 1 gain (1 - 0.8^5) / 0.2 / 2 = 1.68."""
    told_right = load_text("plaza", language).correction
    assert f"{1 / (1 - 0.8):.0f}" in told_right
    assert f"{(1 - 0.8**5) / 0.2 / (4 * 0.25 + 1):.2f}" in told_right


def test_the_plaza_lets_both_builds_draw_alike() -> None:
    (plaza,) = (stage for stage in load_stages() if stage.id == "plaza")
    assert plaza.shared == ("sampling.temperature",)
    assert plaza.reference_to({"sampling.temperature": 0.7, "draft.kind": "self4"}) == {
        **plaza.reference,
        "sampling.temperature": 0.7,
    }
    assert plaza.reference_to({})["sampling.temperature"] == 0
