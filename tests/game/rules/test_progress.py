"""Debt, halls, crowns and rank as folds over records: worked examples, and laws that must hold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.trial import Bound
from game.rules.pareto import Point, dominates, front
from game.rules.progress import dial_cost, ledger, standing
from saves.canonical import seal
from saves.documents import GuessRecord, Record
from story.schema import Crown, Guess, Stage

GATE = Stage(
    id="gate",
    order=0,
    open=True,
    trial="timeline",
    guess=Guess("choice", "bottleneck", choices=("compute", "bandwidth")),
)
PENDULUM = Stage(
    id="pendulum",
    order=1,
    open=True,
    opens_after="gate",
    guess=Guess("dial", "decode_cost_ratio", low=1, high=300, close=1.5),
    goals=(Bound("decode_throughput_ratio", ">=", 6.0), Bound("tpot_ratio", "<=", 1.6)),
    crowns=(
        Crown("time", "decode_ceiling_share", ">=", 0.4),
        Crown("memory", "memory_ratio", "<=", 1.0),
        Crown("quality", "kl", "<=", 0.005),
    ),
)
ABYSS = Stage(id="abyss", order=2, open=False, opens_after="pendulum")
STAGES = (GATE, PENDULUM, ABYSS)


def dial(value: float, truth: float | None) -> GuessRecord:
    if truth is None:
        return GuessRecord(value, None, None, None)
    factor = max(value / truth, truth / value)
    return GuessRecord(value, truth, factor, factor <= 1.5)


def choice(value: str, truth: str = "bandwidth") -> GuessRecord:
    return GuessRecord(value, truth, float(value == truth), value == truth)


def record(
    stage: str,
    word: str,
    guess: GuessRecord | None,
    crowns: tuple[str, ...] = (),
    build: dict[str, int | str] | None = None,
    profile: str = "ann",
    **metrics: float,
) -> Record:
    verdict: dict[str, Any] = {"word": word, "crowns": list(crowns), "metrics": metrics}
    return seal(
        Record("", 1, profile, stage, "2026-01-05T09:00:00", build or {}, guess, verdict, None)
    )


def debt_of(*records: Record) -> int:
    return standing(records, STAGES).debt


def test_the_published_table_of_charges() -> None:
    wrong = record("gate", "pass", choice("compute"))
    assert debt_of(wrong) == 5
    assert debt_of(wrong, record("gate", "pass", choice("bandwidth"))) == 3
    assert debt_of(wrong, record("pendulum", "pass", dial(20, 25))) == 3
    assert debt_of(wrong, record("pendulum", "fail", dial(20, 25))) == 5
    assert debt_of(wrong, record("pendulum", "pass", dial(20, 25), ("time", "memory"))) == 1
    assert debt_of(record("gate", "pass", choice("bandwidth"))) == 0


@pytest.mark.parametrize(
    ("factor", "cost"),
    [(1.51, 1), (2.9, 1), (3.0, 1), (3.01, 2), (6.0, 2), (6.1, 3), (24.1, 5), (300, 6), (1e9, 6)],
)
def test_a_dial_costs_one_for_each_doubling_beyond_close(factor: float, cost: int) -> None:
    assert dial_cost(factor, close=1.5) == cost
    assert debt_of(record("pendulum", "pass", GuessRecord(1.0, factor, factor, False))) == cost


def test_a_guess_carried_into_further_trials_is_charged_once() -> None:
    far = dial(100, 20)
    once = debt_of(record("pendulum", "pass", far))
    assert once == 2  # 5 / 1.5 is between one and two doublings
    again = record("pendulum", "pass", far, build={"schedule.batch": 8})
    assert debt_of(record("pendulum", "pass", far), again) == once


def test_a_hall_repays_a_close_guess_once_so_debt_is_not_worked_off_by_repetition() -> None:
    start = record("gate", "pass", choice("compute"))
    close = [record("pendulum", "pass", dial(20 + n / 10, 20)) for n in range(9)]
    assert debt_of(start, *close) == debt_of(start, close[0]) == 3


def test_a_guess_whose_truth_was_shown_before_is_charged_nothing() -> None:
    shown = msgspec.structs.replace(dial(100, 20), close=None)
    assert debt_of(record("pendulum", "pass", shown)) == 0
    assert debt_of(record("pendulum", "fail", shown)) == 2


def test_halls_open_one_after_the_other_and_only_by_a_counted_pass() -> None:
    def states(*records: Record) -> list[str]:
        return [hall.state for hall in standing(records, STAGES).halls.values()]

    assert states() == ["open", "sealed", "sealed"]
    assert standing((), STAGES).halls["pendulum"].needs == "gate"
    assert standing((), STAGES).halls["abyss"].needs is None
    for word, guess in [("fail", choice("compute")), ("invalid", choice("compute")),
                        ("inconclusive", choice("compute")), ("pass", None)]:  # fmt: skip
        assert states(record("gate", word, guess))[:2] == ["open", "sealed"]
    gate = record("gate", "pass", choice("compute"))
    assert states(gate) == ["passed", "open", "sealed"]
    pendulum = record("pendulum", "pass", dial(20, 20))
    assert states(gate, pendulum) == ["passed", "passed", "sealed"]
    later_failure = record("pendulum", "fail", dial(30, 20))
    assert states(gate, pendulum, later_failure)[1] == "passed"


def test_crowns_gather_over_records_and_each_is_new_once() -> None:
    first = record("pendulum", "pass", dial(20, 20), ("memory",))
    second = record("pendulum", "pass", dial(20, 20), ("time", "memory"))
    entries, reached = ledger((first, second), STAGES)
    assert reached.halls["pendulum"].crowns == ("time", "memory") and reached.crowns == 2
    assert [entry.crowns_new for entry in entries] == [("memory",), ("time",)]
    unearned = record("pendulum", "fail", dial(20, 20), ("quality",))
    foreign = record("pendulum", "pass", dial(20, 20), ("sun",))
    assert standing((unearned, foreign), STAGES).crowns == 0


def figures(throughput: float, memory: float, kl: float) -> dict[str, float]:
    return {"decode_throughput": throughput, "memory_bytes": memory, "kl": kl}


def test_the_front_crown_needs_two_builds_neither_of_which_beats_the_other() -> None:
    def crowned(*ways: tuple[int, dict[str, float]]) -> list[tuple[str, ...]]:
        records = [
            record("pendulum", "pass", dial(20, 20), build={"schedule.batch": batch}, **found)
            for batch, found in ways
        ]
        return [entry.crowns_new for entry in ledger(records, STAGES)[0]]

    fast, small = figures(470, 3e8, 0.002), figures(250, 2e8, 0.002)
    worse = figures(200, 4e8, 0.01)
    assert crowned((8, fast)) == [()]
    assert crowned((8, fast), (8, small)) == [(), ()]
    assert crowned((8, fast), (4, small)) == [(), ("pareto",)]
    assert crowned((8, fast), (2, worse)) == [(), ()]
    assert crowned((8, fast), (2, worse), (4, small)) == [(), (), ("pareto",)]
    assert crowned((8, fast), (4, {"kl": 0.0})) == [(), ()]
    almost = figures(472, 3.001e8, 0.002)
    assert crowned((8, fast), (4, almost)) == [(), ()]  # equal within the dead band


points = st.builds(
    lambda n, t, m, k: Point(str(n), str(n), figures(t, m, k)),
    st.integers(0, 5),
    st.sampled_from([100.0, 200.0, 400.0]),
    st.sampled_from([1e8, 2e8, 4e8]),
    st.sampled_from([0.0, 0.01, 0.1]),
)


@given(st.lists(points, max_size=8))
def test_the_front_is_what_a_plain_search_finds(found: list[Point]) -> None:
    def beats(a: Point, b: Point) -> bool:
        left = (a.figures["decode_throughput"], -a.figures["memory_bytes"], -a.figures["kl"])
        right = (b.figures["decode_throughput"], -b.figures["memory_bytes"], -b.figures["kl"])
        return left != right and all(x >= y for x, y in zip(left, right, strict=True))

    expected = [p for p in found if not any(beats(q, p) for q in found)]
    assert list(front(found)) == expected


def test_noise_within_one_percent_makes_no_build_better() -> None:
    assert not dominates(figures(100.9, 1e8, 0.0), figures(100.0, 1e8, 0.0))
    assert dominates(figures(102.0, 1e8, 0.0), figures(100.0, 1e8, 0.0))
    assert not dominates(figures(102.0, 1e8, 0.001), figures(100.0, 1e8, 0.0))


def test_the_best_figure_is_the_best_pass_and_practice_may_hold_it() -> None:
    slow = record("pendulum", "pass", dial(20, 20), decode_throughput_ratio=7.0, tpot_ratio=1.2)
    fast = record("pendulum", "pass", None, decode_throughput_ratio=9.0, tpot_ratio=1.5)
    lost = record("pendulum", "fail", dial(20, 20), decode_throughput_ratio=11.0, tpot_ratio=2.0)
    best = standing((slow, fast, lost), STAGES).halls["pendulum"].best
    assert best is not None and best.digest == fast.digest and best.practice
    assert best.figures == (("decode_throughput_ratio", 9.0), ("tpot_ratio", 1.5))
    best = standing((fast, slow), STAGES).halls["pendulum"].best
    assert best is not None and best.digest == fast.digest


def test_rank_rises_with_crowns_and_falls_with_debt() -> None:
    all_three = ("time", "memory", "quality")
    crowned = record("pendulum", "pass", dial(20, 20), all_three)
    failures = [record("pendulum", "fail", dial(20, 20)) for _ in range(6)]
    assert standing((), STAGES).rank == "early"
    one = record("pendulum", "pass", dial(20, 20), ("time",))
    assert standing((one,), STAGES).rank == "middle"
    assert standing((crowned,), STAGES).rank == "late"
    assert standing((crowned, *failures[:3]), STAGES).rank == "middle"
    assert standing((crowned, *failures), STAGES).rank == "early"
    last = Stage(id="questions", order=8, open=True, opens_after="pendulum")
    done = record("questions", "pass", None)
    assert standing((crowned, done), (*STAGES, last)).rank == "complete"


def test_records_of_halls_this_game_does_not_have_are_listed_and_inert() -> None:
    foreign = record("cellar", "fail", choice("compute"))
    entries, reached = ledger((foreign,), STAGES)
    assert len(entries) == 1 and not entries[0].counted and reached.debt == 0


def test_a_record_whose_verdict_is_nonsense_is_inert() -> None:
    odd = Record("d", 1, "ann", "pendulum", "t", {}, dial(20, 20), {"metrics": [1]}, None)
    assert standing((odd,), STAGES).debt == 0


guesses = st.one_of(
    st.none(),
    st.builds(dial, st.floats(1, 300), st.floats(1, 300)),
    st.builds(dial, st.floats(1, 300), st.none()),
)
pendulum_records = st.builds(
    lambda word, guess, crowns, batch, t, m, k: record(
        "pendulum", word, guess, tuple(crowns), {"schedule.batch": batch}, **figures(t, m, k)
    ),
    st.sampled_from(["pass", "fail", "inconclusive", "invalid"]),
    guesses,
    st.lists(st.sampled_from(["time", "memory", "quality"]), max_size=3, unique=True),
    st.integers(1, 4),
    st.sampled_from([100.0, 200.0]),
    st.sampled_from([1e8, 2e8]),
    st.sampled_from([0.0, 0.1]),
)
gate_records = st.builds(
    lambda word, value: record("gate", word, choice(value)),
    st.sampled_from(["pass", "invalid"]),
    st.sampled_from(["compute", "bandwidth"]),
)
histories = st.lists(st.one_of(pendulum_records, gate_records), max_size=12)


@given(histories)
def test_debt_is_never_negative_and_is_the_sum_of_what_each_hall_added(
    history: list[Record],
) -> None:
    entries, reached = ledger(history, STAGES)
    assert all(entry.debt_after >= 0 for entry in entries)
    assert reached.debt == sum(hall.debt for hall in reached.halls.values())
    for entry, following in zip(entries, entries[1:], strict=False):
        assert entry.debt_after == following.debt_before
    assert reached.debt == (entries[-1].debt_after if entries else 0)


@given(histories)
def test_the_same_records_always_give_the_same_standing(history: list[Record]) -> None:
    stored = [msgspec.json.decode(msgspec.json.encode(one), type=Record) for one in history]
    assert standing(stored, STAGES) == standing(history, STAGES)


@given(histories, st.integers(0, 12), st.sampled_from(["invalid", "inconclusive"]))
def test_a_trial_that_could_not_be_judged_changes_nothing_the_player_has(
    history: list[Record], place: int, word: str
) -> None:
    extra = record("pendulum", word, dial(300, 1), ("time", "memory", "quality"))
    longer = history[:place] + [extra] + history[place:]
    before, after = standing(history, STAGES), standing(longer, STAGES)
    assert (after.debt, after.crowns, after.passed, after.rank) == (
        before.debt, before.crowns, before.passed, before.rank,
    )  # fmt: skip
    assert after.halls["pendulum"].attempts == before.halls["pendulum"].attempts
    assert after.halls["pendulum"].best == before.halls["pendulum"].best


@given(histories, st.integers(0, 12))
def test_practice_brings_neither_crowns_debt_nor_unlocks(history: list[Record], place: int) -> None:
    extra = record("pendulum", "pass", None, ("time",), decode_throughput_ratio=50.0)
    longer = history[:place] + [extra] + history[place:]
    before, after = standing(history, STAGES), standing(longer, STAGES)
    assert (after.debt, after.crowns, after.passed) == (before.debt, before.crowns, before.passed)


@given(histories, histories, st.randoms())
def test_anothers_records_between_mine_change_nothing(
    mine: list[Record], theirs: list[Record], random_source: Any
) -> None:
    others = [msgspec.structs.replace(one, profile="bo") for one in theirs]
    mixed: list[Record] = []
    left, right = list(mine), list(others)
    while left or right:
        mixed.append(
            (left if right == [] or (left and random_source.random() < 0.5) else right).pop(0)
        )
    assert standing(mixed, STAGES, "ann") == standing(mine, STAGES)


@given(histories)
def test_a_longer_history_never_loses_a_crown_or_a_hall(history: list[Record]) -> None:
    for length in range(len(history)):
        before = standing(history[:length], STAGES)
        after = standing(history[: length + 1], STAGES)
        assert before.passed <= after.passed
        assert set(before.halls["pendulum"].crowns) <= set(after.halls["pendulum"].crowns)
