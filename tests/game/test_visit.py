"""A visit joined to the records: what earlier visits settled, and what an insight may quote."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from canned_memory import ABYSS_BUILDS
from canned_trials import make_result
from canned_weights import BABBLE
from fake_session import FakeBridge, make_session
from sealed_records import a_climb

from game.attempt import Attempt
from game.outcome import Outcome
from game.rules.facts import trial_facts
from game.session import Session
from game.trial_record import result_of, verdict_of
from game.visit import Visit
from saves.documents import Record


def at(home: Path, records: tuple[Record, ...], case: str = "flooded") -> Session:
    bridge = FakeBridge(result=make_result("abyss", case))  # type: ignore[arg-type]
    return make_session(home, "en", records=records, bridge=bridge)


async def tried(visit: Visit) -> Attempt:
    """From the arrival through one trial to its aftermath."""
    attempt = visit.attempt
    attempt.move("guess")
    attempt.seal(40.0)
    attempt.move("forge")
    attempt.move("trial")
    stage = attempt.stage.id
    attempt.judged(await visit.session.trial(stage, ABYSS_BUILDS["flooded"], 40.0))
    attempt.move("aftermath")
    return attempt


@pytest.mark.parametrize(
    ("records", "met", "scarred"),
    [
        (a_climb("gate", "pendulum"), False, False),
        (a_climb("gate", "pendulum", "abyss")[:-1], True, False),
        (a_climb("gate", "pendulum", "abyss"), True, True),
    ],
)
def test_a_visit_begins_where_the_records_stand(
    tmp_path: Path, records: tuple[Record, ...], met: bool, scarred: bool
) -> None:
    attempt = Visit(at(tmp_path, records), "abyss").attempt
    assert (attempt.met, attempt.scarred) == (met, scarred)
    assert attempt.descending is (met and not scarred)


async def test_an_insight_that_a_flood_opens_quotes_the_run_that_held(tmp_path: Path) -> None:
    visit = Visit(at(tmp_path, a_climb("gate", "pendulum", "abyss")[:-1]), "abyss")
    attempt = await tried(visit)
    scar = visit.facts()
    assert scar["flooded"] is True and scar["kv_bits"] == "full" and "kl" not in scar
    attempt.move("insight")
    told = visit.facts()
    # The canned pass: 8,248 tokens at 8 bits. The flood: the eighth request beside seven.
    assert told["live_tokens"] == 8248 and told["kv_bits"] == "8" and told["kl"] == 0.0013
    assert told["flood_running"] == 7 and told["flooded"] is True
    assert told["scar"] is True and told["floods"] == 1
    assert told["debt_change"] == scar["debt_change"] and told["attempts"] == scar["attempts"]


async def test_a_record_that_cannot_be_read_leaves_the_insight_to_the_flood(
    tmp_path: Path,
) -> None:
    *climb, won, _ = a_climb("gate", "pendulum", "abyss")
    broken = msgspec.structs.replace(won, verdict={"word": "pass"}, result={"a": 1})
    visit = Visit(at(tmp_path, (*climb, broken)), "abyss")
    attempt = await tried(visit)
    attempt.move("insight")
    assert visit.facts()["live_tokens"] == 7175
    assert visit.lines("insight", visit.facts())


def fallen_insight(home: Path, *records: Record) -> Visit:
    """At the wall's insight, which the last of `records` opened."""
    climb = a_climb("gate", "pendulum", "abyss", "furnace", "paging")
    visit = Visit(make_session(home, "en", records=(*climb, *records)), "precision")
    result = result_of(records[-1])
    verdict = verdict_of(records[-1])
    assert result is not None and verdict is not None
    told = trial_facts(visit.attempt.stage, None, verdict, result, None, None, 0, 0)
    outcome = Outcome("precision", {}, verdict, result, None, None, 0, 0, facts=told)
    visit.attempt.outcomes.append(outcome)
    visit.attempt.room = "insight"
    return visit


@pytest.mark.parametrize("last", ["pass", "fallen"])
def test_the_insight_of_the_wall_quotes_the_fallen_build_and_the_one_that_held(
    tmp_path: Path, last: str
) -> None:
    won, fell = a_climb("precision")
    order = (fell, won) if last == "pass" else (won, fell)
    told = fallen_insight(tmp_path, *order).facts()
    assert told["babble"] == BABBLE and told["full_answer"] == "Paris."
    assert told["same_answers"] == 0  # the build that held gave one
    assert told["kl"] == 0.117 and told["falls"] == 1 and told["scar"] is True
    assert told["fallen"] is (last == "fallen")


def test_without_its_scar_on_record_the_insight_quotes_nobody(tmp_path: Path) -> None:
    (won, _) = a_climb("precision")
    assert not {"babble", "asked"} & set(fallen_insight(tmp_path, won).facts())
