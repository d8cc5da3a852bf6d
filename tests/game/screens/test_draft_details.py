"""Beneath a verdict on a build that drafted: rows worked by hand, and lines that fit."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest
from canned_drafts import FAIR, UNFAIR, Drafting, make_drafted
from canned_trials import make_result

from engine.draft_report import DraftedText, DraftReport, Lossless, Piece
from engine.trial import DraftCounters, DraftSample, RunSample, TrialResult
from game.outcome import Outcome
from game.rules.judge import judge
from game.screens.draft_details import draft_details
from game.screens.verdict_details import draw_details
from game.widgets.hall_piece import Say
from game.widgets.ink import cells, plain
from story.loader import load_interface_texts
from story.schema import LANGUAGES, Language


def say_in(language: str) -> Say:
    text = load_interface_texts(cast(Language, language))

    def say(key: str, **values: object) -> str:
        return text[key].format(**values)

    return say


def outcome(result: TrialResult | None) -> Outcome:
    judged = make_result("pendulum") if result is None else result
    verdict = judge(judged, judged.spec.bounds)
    return Outcome("plaza", {}, verdict, result, None, None, 0, 0)


def told(result: TrialResult | None, width: int = 100) -> str:
    lines = draft_details(say_in("en"), outcome(result), width)
    return "\n".join(plain(line) for line in lines)


def drafting(run: RunSample, counters: DraftCounters, draft: float, verify: float) -> RunSample:
    return msgspec.structs.replace(run, draft=DraftSample(counters, draft, verify))


def two_runs() -> TrialResult:
    """Decode of 1 s and of 3 s; drafting 0.5 and 1.5, verifying 0.2 and 1.0: a half, 0.3, 0.2.

    In all 20 and 10 drafted at two places, 15 and 3 stood, in 24 steps, four of them bare.
    """
    result = make_drafted()
    pair = result.pairs[0]
    one, two = (
        drafting(msgspec.structs.replace(pair.candidate, step_seconds=(seconds,)), counters, *spent)
        for seconds, counters, spent in (
            (1.0, DraftCounters(12, 4, (12, 6), (9, 3)), (0.5, 0.2)),
            (3.0, DraftCounters(8, 0, (8, 4), (6, 0)), (1.5, 1.0)),
        )
    )
    pairs = tuple(msgspec.structs.replace(pair, candidate=run) for run in (one, two))
    return msgspec.structs.replace(result, pairs=pairs)


def rows(text: str) -> dict[str, str]:
    """Names and figures of the table, which are two blanks or more apart."""
    found = (line.split("  ", 1) for line in text.splitlines() if "  " in line.strip())
    return {name.strip(): figure.strip() for name, figure in found}


def test_counters_are_summed_over_runs_place_by_place() -> None:
    """18 of 30, 60 %; 1 + 18 / 24 tokens a step; 15 of 20 and 3 of 10."""
    table = rows(told(two_runs()))
    assert table["acceptance rate"] == "18 of 30 tokens stood, 60 %; 1.75 tokens a step"
    assert table["By place"] == "1: 75 %, 2: 30 %"


def test_decode_is_drafting_verifying_and_the_rest() -> None:
    table = rows(told(two_runs()))
    assert table["Where decode went"] == "drafting 50 %, verifying 30 %, the rest 20 %"


def test_to_break_even_a_step_must_give_what_it_costs() -> None:
    """2.2 steps for four drafted tokens: 1.2 of 4 must stand, 30 %. At 5.2 all would not do."""
    pays = rows(told(make_drafted(drafting=Drafting(0.25, 1.2, (82, 67, 55, 45)))))
    assert pays["To break even"] == "2.2 tokens a step; an acceptance of 30 %"
    never = rows(told(make_drafted(drafting=Drafting(1.0, 1.2, (82, 67, 55, 45)))))
    assert never["To break even"].startswith("5.2")
    assert never["To break even"].endswith("tokens a step, more than a draft of 4 can ever give")


def test_no_break_even_where_the_reference_is_another() -> None:
    result = two_runs()
    pairs = tuple(msgspec.structs.replace(pair, reference=pair.candidate) for pair in result.pairs)
    assert "To break even" not in told(msgspec.structs.replace(result, pairs=pairs))


@pytest.mark.parametrize(
    ("proof", "words"),
    [
        (Lossless(8, 8, 0, 0.0, 0.01), "8 answers, the same token by token"),
        (Lossless(8, 5, 3, 0.0041, 0.01), "8 answers, 5 the same token by token; 3 parted at a "
         "near-tie, the widest 0.0041 standard deviations"),
        (Lossless(8, 5, 1, 0.0041, 0.01), "2 of 8 answers differ beyond any near-tie"),
    ],
)  # fmt: skip
def test_the_proof_is_told_by_its_outcome(proof: Lossless, words: str) -> None:
    assert rows(told(make_drafted(lossless=proof), 160))["Lossless"] == words


def test_texts_are_told_whole_with_their_marks() -> None:
    said = told(make_drafted(), 300)
    assert "plain: accepted; [struck]: fell; <its own>: the model's" in said
    assert "a story: 24 of 48 stood" in said and "[alone] <on> the edge of [a] <the sea.>" in said
    assert "..." not in said


def test_nothing_where_nobody_drafted_and_parts_where_they_are() -> None:
    assert told(None) == "" and told(make_result("pendulum")) == ""
    assert told(make_drafted({"draft.kind": "none"})) == ""
    result = make_drafted()
    runs_alone = told(msgspec.structs.replace(result, draft=None))
    assert "By place" in runs_alone and "Lossless" not in runs_alone and "[" not in runs_alone
    report_alone = told(msgspec.structs.replace(result, pairs=()))
    assert "By place" not in report_alone and "Lossless" in report_alone


def test_a_run_that_drafted_nothing_is_told_as_such() -> None:
    result = make_drafted()
    bare = DraftCounters(0, 47, (), ())
    pairs = tuple(
        msgspec.structs.replace(pair, candidate=drafting(pair.candidate, bare, 0.0, 0.0))
        for pair in result.pairs
    )
    table = rows(told(msgspec.structs.replace(result, pairs=pairs)))
    assert table["acceptance rate"] == "0 of 0 tokens stood, 0 %; 1 tokens a step"
    assert "By place" not in table and "To break even" not in table


def test_the_details_of_a_verdict_begin_with_them() -> None:
    lines = [plain(line) for line in draw_details(say_in("en"), outcome(make_drafted()), 76)]
    assert lines[0] == "What became of the draft"
    assert lines.index("") > 0 and "Beneath the figures" in lines
    assert "What became" not in plain(draw_details(say_in("en"), outcome(None), 76)[0])


def test_sampled_answers_show_how_they_were_proved() -> None:
    fair = rows(told(make_drafted(drawn=FAIR), width=120))["Lossless"]
    assert fair == (
        "384 tokens, drawn as the model's own probabilities say (Kolmogorov-Smirnov 0.04, p 0.56)"
    )
    unfair = rows(told(make_drafted(drawn=UNFAIR), width=120))["Lossless"]
    assert "384 tokens, not drawn" in unfair and "p 2.1e-05" in unfair


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("width", [36, 40, 76, 80, 116, 120, 196, 200])
def test_every_line_fits(width: int, language: str) -> None:
    strange = DraftedText(
        "\x1b[31mverse\n", "p",
        (Piece("\x1b[2Ja[0] [/bold] 从前有座山，山里有座庙" * 9, "accepted"),
         Piece("[x]\x00", "rejected"), Piece("\u202e<y>", "added")), 9, 4, 3, 12,
    )  # fmt: skip
    ties = Lossless(8, 5, 3, 0.0041, 0.01)
    foreign = msgspec.structs.replace(make_drafted(), draft=DraftReport(ties, (strange,)))
    never = make_drafted(drafting=Drafting(1.0, 1.2, (82, 67, 55, 45)))
    drawn = [make_drafted(drawn=one) for one in (FAIR, UNFAIR)]
    for result in (make_drafted(), two_runs(), foreign, never, *drawn):
        found = draft_details(say_in(language), outcome(result), width)
        assert found and all(cells(line) <= width for line in found)
        text = "\n".join(plain(line) for line in found)
        assert "\x1b" not in text and "\u202e" not in text and "\x00" not in text
