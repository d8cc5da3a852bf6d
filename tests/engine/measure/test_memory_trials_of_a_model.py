"""Hold and serve trials on a real tiny model, and a hundred floods of one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from scripted_server import HELD, SERVED, SERVED_GOAL
from scripted_trials import CAPABILITIES, MACHINE, spec

from engine.config import EngineConfig
from engine.load_metrics import check_load
from engine.measure.shelf import Shelf
from engine.measure.trial_runner import Instruments, TrialRunner
from engine.messages import Account, Event, Pages
from engine.metrics import Evidence, point_estimates
from engine.model.config import ModelConfig
from engine.run.engine import Engine
from engine.trial import TrialResult, TrialSpec

Configs = Callable[..., ModelConfig]

VESSEL = HELD | {"memory.budget": 150, "memory.overflow": "break", "run.precision": "bfloat16"}
"""64 KV tokens take 16 kB in bfloat16; the vessel holds 0.6 MB, the packed weights about half."""


@pytest.fixture
def tiny_runner(
    tiny_config: Configs, tiny_tensors: Any, byte_tokenizer: Any
) -> Callable[..., TrialRunner]:
    config = tiny_config()
    shelf = Shelf(
        SimpleNamespace(
            config=config,
            tensors=tiny_tensors(config),
            tokenizer=byte_tokenizer,
            digest="e" * 64,
            name="tiny",
        )
    )

    def make(events: list[Event], **instruments: Any) -> TrialRunner:
        return TrialRunner(
            shelf,
            MACHINE,
            CAPABILITIES,
            events.append,
            lambda: False,
            instruments=Instruments(**instruments),
        )

    return make


@pytest.mark.parametrize("bits", [0, 8, 4])
def test_a_real_hold_trial_counts_what_its_cache_holds(
    tiny_runner: Callable[..., TrialRunner], tiny_config: Configs, bits: int
) -> None:
    build = VESSEL | {"schedule.batch": 6, "cache.bits": bits}
    result = tiny_runner([]).run(1, held(build, repeats=2, quality=bits == 8))
    assert result.faults == () and result.flood is None and len(result.singles) == 2
    assert {run.peak_live_tokens for run in result.singles} == {6 * (32 + 3)}
    model = tiny_config()
    vector = {0: 2 * model.head_dim, 8: model.head_dim + 2, 4: model.head_dim // 2 + 4}[bits]
    token = 2 * model.layers * model.kv_heads * vector
    assert result.ledger is not None and result.ledger.held_bytes == 210 * token
    assert result.memory.allocated["kv"] == 6 * 36 * token
    assert result.memory.predicted_bytes == pytest.approx(result.memory.allocated_bytes, rel=0.02)
    points = point_estimates(Evidence.of(result))
    assert points["kv_request_mb"] == pytest.approx(2048 * 2 * 2 * 2 * 16 * 2 / 1e6)
    assert 0 < points["vessel_share"] < 1
    if bits == 8:
        assert result.quality is not None and 0 < result.quality.kl < 0.05


def test_a_build_floods_a_hundred_times_and_the_same_process_goes_on(
    tiny_runner: Callable[..., TrialRunner],
) -> None:
    """Seats for 64 and room for fewer: an event with its account, and no restart after it."""
    events: list[Event] = []
    engines: list[Engine] = []

    def make_engine(
        model: Any, config: EngineConfig, eos_ids: frozenset[int], draft: Any
    ) -> Engine:
        engines.append(Engine(model, config, eos_ids=eos_ids))
        return engines[-1]

    runner = tiny_runner(events, make_engine=make_engine)
    flooding = held(VESSEL | {"schedule.batch": 64}, repeats=2)
    floods = []
    for job in range(1, 101):
        result = runner.run(job, flooding)
        assert result.flood is not None and result.faults == () and result.singles == ()
        floods.append(result.flood)
        broken = engines[0]
        assert (broken.held_tokens, broken.reserved_tokens, broken.running) == (0, 0, 0)
        assert not broken.has_work and set(broken.page_map().cells) == {"."}
        engines.clear()
    assert len(set(map(msgspec.json.encode, floods))) == 1, "a flood left something behind"
    (flood,) = {flood.fits: flood for flood in floods}.values()
    assert flood.asked_bytes > flood.free_bytes and flood.running == flood.fits < 64
    assert flood.ledger.budget is not None
    assert flood.ledger.reserved_bytes <= flood.ledger.budget
    assert result.memory.predicted_bytes == pytest.approx(flood.ledger.reserved_bytes, rel=0.02)
    assert sum(isinstance(event, Account) and event.flood is not None for event in events) == 100

    fits = runner.run(101, held(VESSEL | {"schedule.batch": flood.fits}, repeats=2))
    assert fits.flood is None and fits.faults == () and len(fits.singles) == 2


def held(build: dict[str, Any], **changes: Any) -> TrialSpec:
    reference = VESSEL | {"schedule.batch": 1, "cache.bits": 0}
    fields = {"kind": "hold", "build": build, "reference": reference, "bounds": ()}
    return spec(**{**fields, **changes})


def test_a_real_served_trial_pairs_contiguous_slots_with_shared_pages(
    tiny_runner: Callable[..., TrialRunner],
) -> None:
    """Under one budget, float32 on both sides: the same words, from far fuller memory."""
    vessel = SERVED | {"memory.budget": 260, "workload.requests": 12, "schedule.batch": 12}
    paged = {"cache.layout": "paged", "cache.block_size": 8, "cache.prefix_sharing": "on"}
    events: list[Event] = []
    result = tiny_runner(events).run(
        1,
        spec(
            kind="serve", build=vessel | paged, reference=vessel, bounds=(SERVED_GOAL,), looks=(2,)
        ),
    )
    assert {fault.code for fault in result.faults} <= {"noise", "unstable"}
    for pair in result.load_pairs:
        check_load(pair.reference)
        check_load(pair.candidate)
        assert pair.reference.output_digest == pair.candidate.output_digest
        assert pair.reference.cached_tokens == 0
        assert pair.candidate.most_running > pair.reference.most_running
    points = point_estimates(Evidence.of(result))
    assert points["memory_use"] > points["reference_use"] / 100
    # Eleven of twelve requests find two blocks of the 16 shared tokens, but for those that run in
    # the first's own pass.
    asked = sum(pair.candidate.prompt_tokens for pair in result.load_pairs)
    found = result.prefix_hit_rate * asked
    assert found == pytest.approx(round(found)) and 0 < found <= 2 * 11 * 16
    assert result.ledger is not None and result.ledger.budget is not None
    assert result.ledger.reserved_bytes <= result.ledger.budget
    for account in (result.memory, result.reference_memory):
        assert account.predicted_bytes == pytest.approx(account.allocated_bytes, rel=0.02)
    assert all(pair.candidate.work.decode.flops > 0 for pair in result.load_pairs)  # type: ignore[union-attr]
    maps = [event for event in events if isinstance(event, Pages)]
    assert {event.pages.layout for event in maps} <= {"contiguous", "paged"} and maps
    assert msgspec.json.decode(msgspec.json.encode(result), type=TrialResult) == result
