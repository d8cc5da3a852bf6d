"""Requests as lanes: each stretch as long as it lasted, none over another."""

from __future__ import annotations

from itertools import pairwise

import pytest
from canned_serving import make_serve
from hypothesis import given
from hypothesis import strategies as st

from engine.trial import RequestSample
from game.measured import loads_of, typical_load
from game.widgets.ink import cells, plain
from game.widgets.request_lanes import draw_lanes, pieces


def a_request(queued: float, ttft: float, finished: float) -> RequestSample:
    return RequestSample("chat", 100, 2, 0, queued, ttft, finished, (finished - ttft,))


@given(st.lists(st.floats(0, 9), min_size=3, max_size=3), st.integers(10, 200))
def test_stretches_follow_one_another_and_stand_where_they_were(
    times: list[float], dots: int
) -> None:
    queued, ttft, finished = sorted(times)
    found = pieces(a_request(queued, ttft, finished), 10.0, dots)
    assert all(here.right == there.left for here, there in pairwise(found))
    assert all(part.left < part.right <= dots for part in found)
    if found:
        assert found[0].left == 0
        assert abs(found[-1].right - finished / 10 * dots) <= 3, "a dot for each, at the most"
    lasted = {"queued": queued > 0, "prefill": ttft > queued, "decode": finished > ttft}
    assert [part.stretch for part in found] == [name for name, long in lasted.items() if long]


def test_a_request_that_never_waited_has_no_waiting() -> None:
    found = pieces(a_request(0.0, 1.0, 2.0), 2.0, 40)
    assert [(part.stretch, part.left, part.right) for part in found] == [
        ("prefill", 0, 20),
        ("decode", 20, 40),
    ]


@pytest.mark.parametrize("rows", [6, 10, 18, 30])
@pytest.mark.parametrize("columns", [40, 76])
def test_lanes_fit_their_sheet_and_end_where_the_load_did(rows: int, columns: int) -> None:
    result = make_serve()
    load = loads_of(result, "candidate")[0]
    lines = draw_lanes(load, 2 * load.wall_seconds, columns, rows, "your build")
    assert len(lines) <= rows and {cells(line) for line in lines} == {columns}
    assert plain(lines[0]).startswith("your build")
    end = plain(lines[-1]).rstrip()
    assert abs(len(end) - columns / 2) <= 3, "half of the scale is the load's own time"
    if rows >= len(load.requests) + 2:
        kinds = "".join(plain(line)[0] for line in lines[1:-1])
        marks = {"chat": "c", "document": "D"}
        assert kinds == "".join(marks[request.kind] for request in load.requests)


def test_the_typical_load_is_a_load_that_was_served() -> None:
    loads = loads_of(make_serve(), "reference")
    typical = typical_load(loads)
    assert typical in loads and len(loads) == 8
    assert sum(load.wall_seconds < typical.wall_seconds for load in loads) == 3
    assert typical_load(()) is None
