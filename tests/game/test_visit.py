"""A visit joined to the records: what earlier visits settled, and what an insight may quote."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from canned_memory import ABYSS_BUILDS
from canned_trials import make_result
from fake_session import FakeBridge, make_session
from sealed_records import a_climb

from game.attempt import Attempt
from game.session import Session
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
