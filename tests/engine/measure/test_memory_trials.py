"""Hold and serve trials on scripted engines: order, counts, events, and what spoils them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from scripted_server import HELD, ONE, SERVED, SERVED_GOAL, SLOW, ScriptedServer
from scripted_trials import CAPABILITIES, MACHINE, Clock, FakeEngine, FakeShelf, Stage, spec

from engine.config import EngineConfig
from engine.domains import KnobError
from engine.load_metrics import check_load
from engine.machine import Ceilings
from engine.measure.output_check import WrongToken
from engine.measure.trial_runner import Instruments, TrialRunner
from engine.messages import Account, Event, Pages, Progress, Step
from engine.metrics import Evidence, point_estimates
from engine.model.config import ModelConfig
from engine.recipe import Recipe
from engine.serve.failures import InputError
from engine.trial import TrialResult

Configs = Callable[..., ModelConfig]


@dataclass
class Bench:
    """A runner on scripted engines, and what it said."""

    runner: TrialRunner
    clock: Clock
    events: list[Event] = field(default_factory=list)
    servers: list[Any] = field(default_factory=list)

    def run(self, **changes: Any) -> TrialResult:
        return self.runner.run(5, spec(**changes))

    def hold(self, **changes: Any) -> TrialResult:
        fields = {"kind": "hold", "build": HELD, "reference": ONE, "bounds": (), "repeats": 6}
        return self.run(**{**fields, **changes})

    def serve(self, **changes: Any) -> TrialResult:
        fields = {"kind": "serve", "build": SERVED, "reference": SLOW, "bounds": (SERVED_GOAL,)}
        return self.run(**{**fields, **changes})


@pytest.fixture
def make_bench(byte_tokenizer: Any, tiny_config: Configs) -> Callable[..., Bench]:
    def make(make_engine: Callable[[Clock, EngineConfig], Any], **tools: Any) -> Bench:
        clock = Clock()
        bench = Bench(None, clock)  # type: ignore[arg-type]

        def engine(model: Any, config: EngineConfig, eos: Any, draft: Any) -> Any:
            bench.servers.append(make_engine(clock, config))
            return bench.servers[-1]

        bench.runner = TrialRunner(
            FakeShelf(byte_tokenizer, tiny_config()),  # type: ignore[arg-type]
            MACHINE,
            CAPABILITIES,
            bench.events.append,
            lambda: False,
            instruments=Instruments(
                clock=clock, make_engine=engine, **{"check_output": lambda *_: None, **tools}
            ),
        )
        return bench

    return make


@pytest.fixture
def holding(make_bench: Callable[..., Bench], tiny_config: Configs) -> Callable[..., Bench]:
    """A bench of fake engines that run equal requests together."""

    def make(**stage: Any) -> Bench:
        return make_bench(
            lambda clock, config: FakeEngine(Stage(clock=clock, **stage), tiny_config(), config)
        )

    return make


@pytest.fixture
def serving(make_bench: Callable[..., Bench]) -> Callable[..., Bench]:
    def make(tools: dict[str, Any] | None = None, **server: Any) -> Bench:
        def engine(clock: Clock, config: EngineConfig) -> ScriptedServer:
            seats = 2 if config.run.precision == "bfloat16" else 4
            return ScriptedServer(clock, **{"seats": seats, "slot": 104, **server})

        return make_bench(engine, **(tools or {}))

    return make


# Hold


def test_a_hold_trial_repeats_its_build_and_counts_what_lives(
    holding: Callable[..., Bench],
) -> None:
    bench = holding()
    result = bench.hold()
    assert len(result.singles) == 6 and result.pairs == () and result.load_pairs == ()
    # In the last pass: 4 prompts of 32, and all but the last of 4 answers' tokens in each.
    assert {run.peak_live_tokens for run in result.singles} == {4 * (32 + 3)}
    assert result.ledger is not None and result.ledger.live_tokens == 140
    assert result.flood is None and result.faults == ()
    assert point_estimates(Evidence.of(result))["live_tokens"] == 140


def test_the_reference_of_a_hold_trial_is_accounted_for_and_never_run(
    holding: Callable[..., Bench], tiny_config: Configs
) -> None:
    bench = holding()
    result = bench.hold()
    candidate, reference = bench.servers
    assert candidate.stage.steps > 0 and reference.stage.steps == 0
    model = tiny_config()
    assert result.reference_memory.kv_tokens == 36
    token = 2 * model.layers * model.kv_heads * model.head_dim * 4
    assert point_estimates(Evidence.of(result))["kv_request_mb"] == token * 2048 / 1e6


def test_noise_never_spoils_a_hold_trial(holding: Callable[..., Bench]) -> None:
    wild = {"step_ms": lambda _, source: 200.0 * source.uniform(0.1, 2.0) ** 2}
    assert holding(**wild).hold().faults == ()
    timed = holding(**wild).run(kind="timeline", build=HELD, reference=ONE, bounds=())
    assert {fault.code for fault in timed.faults} <= {"noise", "unstable"} and timed.faults


@pytest.mark.parametrize("run", [1, 5])
def test_a_budget_that_breaks_is_a_result(holding: Callable[..., Bench], run: int) -> None:
    """Whether it breaks at once, in warm-up, or later: nothing that was timed is kept."""
    checked: list[Any] = []
    bench = holding(flood_in_run=run)
    bench.runner._tools = msgspec_replace(bench.runner._tools, check_output=checked.append)
    result = bench.hold(quality=True)
    assert result.flood is not None and result.flood.fits == 3
    assert result.ledger == result.flood.ledger
    assert result.memory.allocated == result.flood.ledger.parts
    assert (result.singles, result.faults, result.quality, checked) == ((), (), None, [])
    floods = [event for event in bench.events if isinstance(event, Account) and event.flood]
    assert [event.flood for event in floods] == [result.flood] and floods[0].job == 5
    assert not [e for e in bench.events if isinstance(e, Progress) and e.phase == "checking"]
    assert not bench.servers[0].prompts, "the engine was not emptied"
    assert msgspec.json.decode(msgspec.json.encode(result), type=TrialResult) == result


def msgspec_replace(tools: Instruments, **changes: Any) -> Instruments:
    return Instruments(**{**vars(tools), **changes})


def test_accounts_are_told_at_most_twice_a_second(holding: Callable[..., Bench]) -> None:
    bench = holding()
    bench.hold()
    told = [event for event in bench.events if isinstance(event, Account)]
    seconds = bench.clock.now / 1e9
    assert 2 < len(told) <= seconds / 0.5 + 1
    assert {event.build for event in told} == {"candidate"}
    assert not [event for event in bench.events if isinstance(event, Pages)]


def test_other_kinds_of_trial_tell_no_account(holding: Callable[..., Bench]) -> None:
    bench = holding()
    bench.run(kind="timeline", build=HELD, reference=ONE, bounds=())
    assert not [event for event in bench.events if isinstance(event, Account | Pages)]


def test_a_batch_that_would_have_to_queue_is_refused_with_what_fits(
    holding: Callable[..., Bench],
) -> None:
    """A vessel of 250 %: beside weights and working memory it has no room for 64 requests."""
    waits = HELD | {"memory.budget": 250, "schedule.batch": 64, "memory.overflow": "wait"}
    bench = holding()
    with pytest.raises(KnobError, match=r"fit the vessel at once.*nearest: \d+"):
        bench.hold(build=waits)
    assert bench.hold(build=waits | {"memory.overflow": "break"}).singles


# Serve


def test_a_served_trial_pairs_whole_loads_in_abba_order(serving: Callable[..., Bench]) -> None:
    bench = serving()
    result = bench.serve()
    assert [pair.order for pair in result.load_pairs] == ["AB", "BA"] * 4
    assert result.pairs == () and result.singles == () and result.faults == ()
    order = [event.order for event in bench.events if isinstance(event, Progress) and event.order]
    assert order == ["A", "B", "B", "A"] * 4
    for pair in result.load_pairs:
        check_load(pair.reference)
        check_load(pair.candidate)
        assert pair.reference.prompt_tokens == pair.candidate.prompt_tokens
        shapes = [
            [(r.kind, r.prompt_tokens, r.output_tokens) for r in side.requests]
            for side in (pair.reference, pair.candidate)
        ]
        assert shapes[0] == shapes[1]
    points = point_estimates(Evidence.of(result))
    walls = [pair.reference.wall_seconds / pair.candidate.wall_seconds
             for pair in result.load_pairs]  # fmt: skip
    assert min(walls) <= points["throughput_ratio"] <= max(walls)
    assert points["throughput_ratio"] > 1.15


def test_every_timed_load_is_another_and_warm_up_loads_have_one_shape(
    serving: Callable[..., Bench],
) -> None:
    result = serving().serve()
    lengths = [
        tuple(request.prompt_tokens for request in pair.candidate.requests)
        for pair in result.load_pairs
    ]
    assert len(set(lengths)) == 8
    assert result.warmup_runs == 6  # three of one shape agree at once, for each build


def test_what_was_counted_of_a_load_is_its_own_work(serving: Callable[..., Bench]) -> None:
    result = serving().serve()
    works = {pair.candidate.work for pair in result.load_pairs}
    assert len(works) == 8 and None not in works
    moved = [pair.candidate.work.decode.bytes_moved for pair in result.load_pairs]  # type: ignore[union-attr]
    assert min(moved) < result.candidate_work.decode.bytes_moved < max(moved)


def test_the_prefix_hit_rate_is_that_of_the_candidate_s_loads(
    serving: Callable[..., Bench],
) -> None:
    result = serving(cached=16).serve()
    loads = [pair.candidate for pair in result.load_pairs]
    found, asked = 8 * 5 * 16, sum(load.prompt_tokens for load in loads)
    assert result.prefix_hit_rate == pytest.approx(found / asked)
    assert serving().serve().prefix_hit_rate == 0.0


def test_one_request_of_every_load_is_checked_with_its_cache_s_bits(
    serving: Callable[..., Bench],
) -> None:
    checked: list[tuple[int, str, int]] = []

    def check(
        model: Any, run: Any, request: int, precision: str, bits: int, recipe: Recipe
    ) -> WrongToken | None:
        assert len(run.prompts) == len(run.outputs) == 6
        checked.append((request, precision, bits))
        return WrongToken(1, 65, 9, 3.5, 0.25) if len(checked) == 12 else None

    narrow = {"build": SERVED | {"cache.bits": 8}, "reference": SLOW | {"cache.bits": 8}}
    result = serving({"check_output": check}).serve(**narrow)
    assert len(checked) == 12 and {bits for _, _, bits in checked} == {8}
    assert len({request for request, _, _ in checked[:8]}) > 1
    (fault,) = result.faults
    assert "reference, run 4" in fault.details["what"]
    assert "bfloat16 with 8-bit KV" in fault.details["what"]


def test_pages_and_accounts_of_both_builds_are_told(serving: Callable[..., Bench]) -> None:
    bench = serving(prefill_ms=100.0)
    bench.serve()
    for kind in (Pages, Account, Step):
        told = [event for event in bench.events if isinstance(event, kind)]
        assert {event.build for event in told} == {"candidate", "reference"}  # type: ignore[attr-defined]
        assert len(told) <= bench.clock.now / 1e9 / 0.5 + 1
    for pages in (event for event in bench.events if isinstance(event, Pages)):
        assert pages.running + pages.waiting + pages.finished == 6
        assert pages.pages.layout == "contiguous"


def test_loads_of_other_sizes_or_counts_are_not_compared(serving: Callable[..., Bench]) -> None:
    for change in (
        {"workload.prompt": 80},
        {"workload.requests": 5},
    ):
        with pytest.raises(KnobError, match="one load"):
            serving().serve(build=SERVED | change)
    by_batch = {"workload.requests": 0}
    with pytest.raises(KnobError, match=r"workload\.requests"):
        serving().serve(build=SERVED | by_batch | {"schedule.batch": 5}, reference=SLOW | by_batch)


def test_a_load_beyond_physics_has_the_ceilings_measured_again(
    serving: Callable[..., Bench],
) -> None:
    low = msgspec.structs.replace(MACHINE.ceilings, read_bytes_per_second=1e3)
    looks: list[Ceilings] = []

    def again(before: Ceilings, *_: Any) -> Ceilings:
        looks.append(before)
        return MACHINE.ceilings

    bench = serving({"measure_again": again})
    bench.runner._ceilings = low
    assert bench.serve().faults == () and looks == [low]
    stubborn = serving({"measure_again": lambda before, *_: before})
    stubborn.runner._ceilings = low
    assert [fault.code for fault in stubborn.serve().faults] == ["too_fast"]


def test_counters_that_lie_make_a_trial_invalid(serving: Callable[..., Bench]) -> None:
    class Liar(ScriptedServer):
        lies = property(lambda self: {"prefilled_tokens": 1}, lambda self, _: None)  # type: ignore[assignment]

    bench = serving()
    result = bench.serve()
    assert result.faults == ()
    bench.runner._tools = msgspec_replace(
        bench.runner._tools, make_engine=lambda model, config, eos, draft: Liar(bench.clock)
    )
    (fault,) = bench.serve().faults
    assert fault.code == "wrong_output" and "prefilled tokens" in fault.details["what"]


def test_a_reference_that_breaks_its_budget_cannot_be_compared_with(
    serving: Callable[..., Bench],
) -> None:
    with pytest.raises(InputError, match="the reference cannot be compared with"):
        serving(flood_at=3).serve()
