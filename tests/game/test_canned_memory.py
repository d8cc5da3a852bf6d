"""The canned trials of memory could have been: their identities hold, their figures add up."""

from __future__ import annotations

import pytest
from canned_memory import ABYSS, abyss_case, account_events, make_hold, vessel
from canned_serving import make_serve, pages_events

from engine.load_metrics import check_load, memory_use, throughput
from engine.messages import Account, Pages, decode_event, encode
from engine.metrics import check_sample


@pytest.mark.parametrize("case", ["pass", "fail", "straddle"])
def test_canned_loads_keep_every_identity(case: str) -> None:
    for pair in make_serve(case).load_pairs:  # type: ignore[arg-type]
        check_load(pair.reference)
        check_load(pair.candidate)


def test_canned_runs_keep_every_identity_and_fill_the_ledger() -> None:
    for case in ("pass", "fail"):
        result = make_hold(case)  # type: ignore[arg-type]
        for run in result.singles:
            check_sample(run)
            assert result.ledger is not None
            assert run.peak_live_tokens == result.ledger.live_tokens
            assert result.ledger.reserved_bytes <= vessel(result.config)


def test_a_canned_flood_asks_for_more_than_is_free_and_keeps_the_budget() -> None:
    flood = make_hold("flooded").flood
    assert flood is not None and flood.ledger.budget is not None
    assert flood.free_bytes == flood.ledger.budget - flood.ledger.reserved_bytes >= 0
    assert flood.asked_bytes > flood.free_bytes and flood.fits < flood.requests


def test_pages_win_over_slots_in_the_canned_array() -> None:
    pair = make_serve("pass").load_pairs[0]
    assert memory_use(pair.candidate) > 0.9 > 0.6 > memory_use(pair.reference)
    assert throughput(pair.candidate) > 1.5 * throughput(pair.reference)


@pytest.mark.parametrize(
    ("build", "case"),
    [
        ({}, "fail"),
        ({"schedule.batch": 8}, "flooded"),
        ({"schedule.batch": 8, "cache.bits": 8}, "pass"),
        ({"schedule.batch": 8, "cache.bits": 4}, "fail"),
        ({"schedule.batch": 64, "cache.bits": 4}, "flooded"),
    ],
)
def test_builds_of_the_abyss_meet_their_canned_ends(build: dict[str, int | str], case: str) -> None:
    assert abyss_case(ABYSS | build) == case


def test_canned_events_travel() -> None:
    events = [*account_events("flooded"), *pages_events()]
    assert {Account, Pages} <= {type(event) for event in events}
    for event in events:
        assert decode_event(encode(event)) == event
    for event in events:
        if isinstance(event, Pages):
            pages = event.pages
            assert pages.held_tokens <= pages.reserved_tokens <= len(pages.cells) * pages.block_size
