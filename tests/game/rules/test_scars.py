"""Scars as folds over records: a hall that demands one is passed by its goals and its flood."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
import pytest
from sealed_records import a_climb, make_record

from engine.trial import Bound
from game.rules.progress import flooded, ledger, standing
from game.rules.standing import HallStanding
from saves.canonical import seal
from saves.documents import GuessRecord, Record
from story.loader import load_stages
from story.schema import Guess, Stage

ABYSS = Stage(
    id="abyss",
    order=0,
    open=True,
    trial="hold",
    scar="flood",
    guess=Guess("dial", "kv_request_mb", low=1, high=10_000),
    goals=(Bound("live_tokens", ">=", 8192),),
)
NEXT = Stage(id="paging", order=1, open=True, opens_after="abyss")
STAGES = (ABYSS, NEXT)
SEALED = GuessRecord(40.0, 47.2, 1.18, True)
FLOOD: tuple[Any, ...] = ({"code": "flooded", "details": {}},)


def record(word: str, reasons: Any = (), guess: GuessRecord | None = SEALED, n: int = 0) -> Record:
    verdict = {"word": word, "crowns": [], "metrics": {}, "reasons": list(reasons)}
    return seal(Record("", 1, "a", "abyss", f"2026-01-05T09:00:0{n}", {}, guess, verdict, None))


PASS, FAIL, FLOODED = record("pass", n=1), record("fail", n=2), record("fail", FLOOD, n=3)


def abyss(*records: Record) -> HallStanding:
    return standing(records, STAGES).halls["abyss"]


def opened(*records: Record) -> bool:
    return standing(records, STAGES).halls["paging"].state == "open"


@pytest.mark.parametrize("order", list(permutations((PASS, FAIL, FLOODED))))
def test_goals_and_scar_together_pass_the_hall_in_any_order(order: tuple[Record, ...]) -> None:
    assert abyss(*order).state == "passed" and opened(*order)


@pytest.mark.parametrize("records", [(PASS,), (PASS, FAIL), (FLOODED,), (FLOODED, FAIL), ()])
def test_one_without_the_other_leaves_the_way_sealed(records: tuple[Record, ...]) -> None:
    assert abyss(*records).state == "open" and not opened(*records)
    assert abyss(*records).met is (PASS in records)
    assert (abyss(*records).scar is not None) is (FLOODED in records)


def test_the_scar_is_the_first_flood_and_later_ones_are_counted() -> None:
    later = record("fail", FLOOD, n=4)
    hall = abyss(FLOODED, PASS, later)
    assert hall.scar == FLOODED.digest and hall.floods == 2
    assert abyss(PASS).floods == 0


@pytest.mark.parametrize(
    "void",
    [
        record("fail", FLOOD, guess=None),
        record("invalid", FLOOD),
        record("inconclusive", FLOOD),
        record("pass", FLOOD),
    ],
    ids=["practice", "invalid", "inconclusive", "pass"],
)
def test_only_a_judged_flood_under_a_seal_leaves_a_scar(void: Record) -> None:
    assert abyss(PASS, void).scar is None


def test_a_practice_pass_does_not_count_beside_a_scar() -> None:
    assert abyss(FLOODED, record("pass", guess=None)).state == "open"


def test_a_flood_costs_what_a_failed_trial_costs() -> None:
    entries, _ = ledger((FLOODED,), STAGES)
    assert [charge.code for charge in entries[0].charges] == ["guess_close", "trial_failed"]
    assert entries[0].counted


@pytest.mark.parametrize(
    "reasons", [None, "flooded", 7, [None], ["flooded"], [{"code": 3}], [{}], {"code": "flooded"}]
)
def test_a_record_that_holds_anything_else_is_no_flood(reasons: Any) -> None:
    odd = msgspec.structs.replace(FAIL, verdict={"word": "fail", "reasons": reasons})
    assert not flooded(odd) and abyss(odd).scar is None


def test_a_hall_that_demands_none_is_passed_without_one() -> None:
    plain = msgspec.structs.replace(ABYSS, scar=None)
    assert standing((PASS,), (plain, NEXT)).halls["abyss"].state == "passed"


def test_a_scar_never_heals_and_a_passed_hall_stays_passed() -> None:
    more = [record("fail", n=n) for n in range(5, 9)]
    assert abyss(PASS, FLOODED, *more).state == "passed"
    assert abyss(PASS, FLOODED, *more).scar == FLOODED.digest


FALL: tuple[Any, ...] = ({"code": "over_the_cliff", "details": {}}, {"code": "goal_broken"})
FELL = record("fail", FALL, n=3)
CLIFF = msgspec.structs.replace(ABYSS, trial="paired", scar="cliff")


def cliff(*records: Record) -> HallStanding:
    return standing(records, (CLIFF, NEXT)).halls["abyss"]


def test_goals_met_without_a_fall_do_not_pass_the_hall_of_the_cliff() -> None:
    hall = cliff(PASS, FAIL, FLOODED)
    assert hall.met and hall.scar is None and hall.state == "open" and hall.falls == 0
    assert standing((PASS, FAIL), (CLIFF, NEXT)).halls["paging"].state == "sealed"


@pytest.mark.parametrize("order", list(permutations((PASS, FAIL, FELL))))
def test_a_fall_and_the_goals_pass_it_in_any_order(order: tuple[Record, ...]) -> None:
    hall = cliff(*order)
    assert hall.state == "passed" and hall.scar == FELL.digest and hall.falls == 1


def test_the_scar_is_the_first_fall_and_later_ones_are_counted() -> None:
    later = record("fail", FALL, n=4)
    hall = cliff(FELL, later, PASS)
    assert hall.scar == FELL.digest and (hall.falls, hall.floods) == (2, 0)


@pytest.mark.parametrize("word", ["invalid", "inconclusive", "pass"])
def test_only_a_judged_fall_under_a_seal_leaves_a_scar(word: str) -> None:
    void = (record(word, FALL), record("fail", FALL, guess=None))
    assert cliff(PASS, *void).scar is None and cliff(PASS, *void).falls == 0


def test_a_fall_leaves_no_scar_where_none_or_another_is_demanded() -> None:
    assert abyss(PASS, FELL).scar is None and abyss(PASS, FELL).falls == 1
    plain = msgspec.structs.replace(ABYSS, scar=None)
    hall = standing((FELL, FLOODED, PASS), (plain, NEXT)).halls["abyss"]
    assert hall.scar is None and (hall.falls, hall.floods) == (1, 1)


def test_the_shipped_wall_is_passed_through_the_fall() -> None:
    stages = load_stages()
    climb = a_climb("gate", "pendulum", "abyss", "furnace", "paging", "precision")
    wall = standing(climb, stages).halls["precision"]
    assert wall.state == "passed" and wall.scar == climb[-1].digest
    assert standing(climb[:-1], stages).halls["precision"].state == "open"


def test_the_shipped_mountain_is_climbed_through_the_flood() -> None:
    stages = load_stages()
    climb = a_climb("gate", "pendulum", "abyss")
    reached = standing(climb, stages)
    assert {"gate", "pendulum", "abyss"} == reached.passed
    assert reached.halls["furnace"].state == "open"
    dry = standing(climb[:-1], stages)
    assert dry.halls["abyss"].met and dry.halls["furnace"].state == "sealed"


def test_builds_of_a_load_win_the_crown_of_the_front_by_their_throughput() -> None:
    stages = load_stages()
    guess = GuessRecord(45.4, 45.4, 1.0, True)

    def served(number: int, block: int, rate: float, memory: float) -> Record:
        one = make_record("paging", "pass", number=number, guess=guess)
        verdict = dict(one.verdict)
        figures = {"throughput": rate, "memory_bytes": memory, "kl": 0.0006}
        verdict["metrics"] = {**verdict["metrics"], **figures}
        build = {**one.build, "cache.block_size": block}
        return msgspec.structs.replace(one, verdict=verdict, build=build)

    fast, small = served(1, 16, 140.0, 387e6), served(2, 8, 120.0, 360e6)
    worse = served(3, 64, 100.0, 390e6)
    assert "pareto" not in standing((fast,), stages).halls["paging"].crowns
    assert "pareto" not in standing((fast, worse), stages).halls["paging"].crowns
    assert "pareto" in standing((fast, small), stages).halls["paging"].crowns
