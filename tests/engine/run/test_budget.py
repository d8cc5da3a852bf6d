"""The vessel: what it holds is planned, what breaks it is told in full, and serving goes on."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from episodes import by_rescoring, configure, drain, greedy, serve, squeezed

from engine.cache_plan import BudgetError, CachePlan, vessel_bytes
from engine.config import EngineConfig, MemoryConfig
from engine.model.llama import Llama
from engine.run.budget import BudgetExceeded, most_that_fit
from engine.run.engine import Engine

Prompt = Callable[..., list[int]]


def flooding(model: Llama, units: int, **settings: object) -> EngineConfig:
    plain = configure(batch=8, overflow="break", **settings)  # type: ignore[arg-type]
    return squeezed(model, plain, units)


@pytest.mark.parametrize("bits", [0, 16, 8, 4])
@pytest.mark.parametrize(("layout", "units"), [("contiguous", 3), ("paged", 17)])
def test_what_is_reserved_never_passes_the_vessel(
    model: Llama, layout: str, units: int, bits: int
) -> None:
    config = squeezed(model, configure(batch=8, layout=layout, bits=bits), units)
    engine = Engine(model, config)
    vessel = vessel_bytes(config, model.config)
    assert vessel is not None
    unit = engine.plan.unit_bytes
    assert vessel - unit < engine.ledger().reserved_bytes <= vessel
    assert sum(engine.allocated().values()) == pytest.approx(engine.ledger().reserved_bytes)
    assert sum(engine.allocated().values()) <= vessel * 1.02


def test_the_ledger_tells_what_is_held_at_every_moment(model: Llama, prompt: Prompt) -> None:
    engine = Engine(model, configure(batch=3, layout="paged", block=8))
    token = 2 * 2 * 2 * 8 * 4  # k and v, layers, kv heads, head_dim, float32
    for seed in range(3):
        engine.add_request(prompt(10 + seed, seed), greedy(5))
    held = 0
    while engine.has_work:
        step = engine.step()
        held += step.rows
        ledger = engine.ledger()
        if not step.finished:
            assert ledger.live_tokens == engine.held_tokens == held
        assert ledger.held_bytes == ledger.live_tokens * token <= ledger.parts["kv"]
        assert ledger.budget is None
        assert ledger.parts.keys() == engine.allocated().keys()
    assert engine.ledger().held_bytes == 0


@pytest.mark.parametrize(("layout", "units", "fits"), [("contiguous", 3, 3), ("paged", 17, 3)])
def test_a_request_without_room_breaks_the_budget_and_says_everything(
    model: Llama, prompt: Prompt, layout: str, units: int, fits: int
) -> None:
    engine = Engine(model, flooding(model, units, layout=layout))
    for seed in range(6):
        engine.add_request(prompt(60, seed), greedy(20))
    with pytest.raises(BudgetExceeded) as caught:
        drain(engine)
    flood = caught.value.flood
    # Blocks of 16: a prompt of 60 takes 4, so 17 blocks take four requests and break at the fifth.
    running = 3 if layout == "contiguous" else 4
    assert (flood.running, flood.requests, flood.fits) == (running, 6, fits)
    assert flood.ledger == engine.ledger()
    assert flood.ledger.live_tokens == 60 * running
    unit = engine.plan.unit_bytes
    assert flood.asked_bytes == (unit if layout == "contiguous" else 4 * unit)
    assert 0 <= flood.free_bytes < flood.asked_bytes
    assert flood.free_bytes // unit == (0 if layout == "contiguous" else 1)
    message = str(caught.value)
    budget = flood.ledger.budget
    assert budget is not None
    figures = [budget, *flood.ledger.parts.values(), flood.asked_bytes, flood.free_bytes]
    assert all(f"{figure:,}" in message for figure in figures)
    assert f"at most {fits} of these requests fit" in message


def test_growing_past_the_pool_breaks_the_budget_too(model: Llama, prompt: Prompt) -> None:
    engine = Engine(model, flooding(model, 8, layout="paged", block=16))
    for seed in range(2):
        engine.add_request(prompt(60, seed), greedy(20))
    assert engine.step().rows == 120
    with pytest.raises(BudgetExceeded) as caught:
        drain(engine)
    flood = caught.value.flood
    assert flood.running == 2 and flood.ledger.live_tokens == 128
    assert flood.asked_bytes > flood.free_bytes
    assert flood.fits == 1  # 79 tokens are 5 blocks


def test_a_flood_changes_nothing_and_goes_away_with_its_cause(model: Llama, prompt: Prompt) -> None:
    engine = Engine(model, flooding(model, 2))
    ids = [engine.add_request(prompt(20, seed), greedy(6)) for seed in range(3)]
    engine.step()
    before = (engine.ledger(), engine.page_map(), engine.counters, engine.running, engine.waiting)
    for _ in range(2):
        with pytest.raises(BudgetExceeded):
            engine.step()
    after = (engine.ledger(), engine.page_map(), engine.counters, engine.running, engine.waiting)
    assert before == after
    engine.abort(ids[0])
    outputs, _ = drain(engine)
    assert outputs[ids[2]] == by_rescoring(model, prompt(20, 2), 6)


@pytest.mark.parametrize(
    ("layout", "sharing"), [("contiguous", "off"), ("paged", "off"), ("paged", "on")]
)
def test_a_hundred_floods_leak_nothing_and_the_engine_serves_on(
    model: Llama, prompt: Prompt, layout: str, sharing: str
) -> None:
    units = 2 if layout == "contiguous" else 11
    engine = Engine(model, flooding(model, units, layout=layout, sharing=sharing))
    empty = engine.page_map()
    floods = set()
    for turn in range(100):
        for seed in range(4):
            engine.add_request(prompt(50, seed + turn % 3), greedy(20))
        with pytest.raises(BudgetExceeded) as caught:
            drain(engine)
        floods.add((caught.value.flood.running, caught.value.flood.free_bytes))
        engine.reset()
        assert engine.page_map() == empty
        assert (engine.held_tokens, engine.reserved_tokens) == (0, 0)
    assert len(floods) == 1
    outputs, _ = serve(engine, [(prompt(50), greedy(8))])
    assert outputs == [by_rescoring(model, prompt(50), 8)]


def test_where_requests_may_wait_the_vessel_never_breaks(model: Llama, prompt: Prompt) -> None:
    engine = Engine(model, squeezed(model, configure(batch=8), 2))
    outputs, steps = serve(engine, [(prompt(20, seed), greedy(4)) for seed in range(5)])
    assert max(len(step.sequence_ids) for step in steps) == 2
    assert [len(said) for said in outputs] == [4] * 5


def test_a_vessel_too_small_for_one_request_is_refused_before_anything_is_allocated(
    model: Llama,
) -> None:
    tight = squeezed(model, configure(batch=8), 1)
    config = msgspec.structs.replace(tight, memory=MemoryConfig(tight.memory.budget - 5))
    with pytest.raises(BudgetError, match=r"a request of at most \d+ tokens would fit"):
        Engine(model, config)
    with pytest.raises(BudgetError, match="not one token fits"):
        Engine(model, msgspec.structs.replace(config, memory=MemoryConfig(1)))


def test_the_most_requests_that_fit_are_the_shortest() -> None:
    paged = CachePlan("paged", 64, 0, 10, 4, 1)
    assert most_that_fit([40, 9, 4, 1], paged) == 3  # 1 + 1 + 3 blocks, and 10 more
    assert most_that_fit([40], paged) == 1
    assert most_that_fit([41], paged) == 0
    assert most_that_fit([4] * 5, CachePlan("contiguous", 64, 3, 0, 16, 1)) == 3
    assert most_that_fit([4], CachePlan("contiguous", 64, 3, 0, 16, 1)) == 1
