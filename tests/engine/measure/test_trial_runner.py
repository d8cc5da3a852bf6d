"""Trials on an engine and a clock that do as they are told, and one on a real tiny model."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from scripted_trials import (
    CANDIDATE,
    CAPABILITIES,
    GOAL,
    MACHINE,
    REFERENCE,
    FakeEngine,
    FakeShelf,
    Stage,
    spec,
)

from engine.domains import KnobError
from engine.machine import Ceilings
from engine.measure.output_check import WrongToken
from engine.measure.shelf import Shelf
from engine.measure.trial_runner import Instruments, TrialRunner
from engine.messages import Event, Progress, Step
from engine.metrics import Evidence, check_sample, point_estimates
from engine.model.config import ModelConfig
from engine.recipe import Recipe
from engine.serve.failures import Aborted
from engine.trial import Bound, TrialResult
from game.rules.judge import judge

Configs = Callable[..., ModelConfig]
Tensors = Callable[[ModelConfig], dict[str, torch.Tensor]]


@dataclass
class Bench:
    """A runner around a stage, and what it said."""

    stage: Stage
    runner: TrialRunner
    events: list[Event]

    def run(self, **changes: Any) -> TrialResult:
        return self.runner.run(5, spec(**changes))


@pytest.fixture
def make_bench(byte_tokenizer: Any, tiny_config: Configs) -> Callable[..., Bench]:
    def make(
        stage: Stage | None = None, aborted: Callable[[Stage], bool] | None = None, **tools: Any
    ) -> Bench:
        stage = stage or Stage()
        events: list[Event] = []
        instruments = Instruments(
            clock=stage.clock,
            make_engine=lambda model, config, eos, draft: FakeEngine(stage, tiny_config(), config),
            **{"check_output": lambda *_: None, **tools},
        )
        runner = TrialRunner(
            FakeShelf(byte_tokenizer, tiny_config()),  # type: ignore[arg-type]
            MACHINE,
            CAPABILITIES,
            events.append,
            lambda: aborted is not None and aborted(stage),
            instruments=instruments,
        )
        return Bench(stage, runner, events)

    return make


def test_a_clear_trial_ends_at_the_first_look(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    result = bench.run()
    assert [pair.order for pair in result.pairs] == ["AB", "BA"] * 4
    assert result.faults == () and result.warmup_runs == 6
    verdict = judge(result, [GOAL])
    assert verdict.word == "pass"
    # 26 ms against 20, and no request waits: all prefill in one pass
    assert verdict.metrics["tpot_ratio"] == pytest.approx(1.3)
    assert verdict.metrics["decode_throughput_ratio"] == pytest.approx(4 * 20 / 26)
    for pair in result.pairs:
        check_sample(pair.reference)
        check_sample(pair.candidate)


def test_timed_runs_alternate_as_the_order_says(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.run()
    timed = [batch for batch, _ in bench.stage.runs[6:22]]
    assert timed == [1, 4, 4, 1] * 4
    order = [event.order for event in bench.events if isinstance(event, Progress) and event.order]
    assert order == ["A", "B", "B", "A"] * 4


def test_both_builds_of_a_pair_get_the_same_fresh_prompts(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    bench.run()
    timed = bench.stage.runs[6:22]
    for first, second in zip(timed[::2], timed[1::2], strict=True):
        small, large = sorted((first[1], second[1]), key=len)
        assert len(small) == 1 and small[0] == large[0]
    everything = [prompt for batch, prompts in bench.stage.runs if batch == 4 for prompt in prompts]
    assert len({prompt[:3] for prompt in everything}) == len(everything)


def test_equal_seeds_give_equal_outputs_and_prompts(make_bench: Callable[..., Bench]) -> None:
    first, second, other = make_bench(), make_bench(), make_bench()
    results = [first.run(), second.run(), other.run(seed=12)]
    assert first.stage.runs == second.stage.runs != other.stage.runs
    assert results[0].pairs == results[1].pairs


def test_an_undecided_trial_looks_three_times_and_stays_undecided(
    make_bench: Callable[..., Bench],
) -> None:
    def wavering(batch: int, source: random.Random) -> float:
        return 20.0 if batch == 1 else 32.0 * source.uniform(0.9, 1.1)

    result = make_bench(Stage(step_ms=wavering)).run()
    assert len(result.pairs) == 32
    assert judge(result, [GOAL]).word == "inconclusive"


def test_a_goal_that_clears_at_the_second_look_stops_there(
    make_bench: Callable[..., Bench],
) -> None:
    """One slow run leaves eight pairs undecided; sixteen settle it."""
    state = {"calls": 0}

    def one_hiccup(batch: int, _: random.Random) -> float:
        if batch == 1:
            return 20.0
        state["calls"] += 1
        return 45.0 if 16 <= state["calls"] <= 20 else 27.0

    result = make_bench(Stage(step_ms=one_hiccup)).run()
    assert len(result.pairs) == 16


def test_memory_goals_do_not_keep_a_trial_looking(make_bench: Callable[..., Bench]) -> None:
    bounds = (GOAL, Bound("memory_ratio", "<=", 5.0), Bound("kl", "<=", 0.1))
    assert len(make_bench().run(bounds=bounds).pairs) == 8


def test_a_wide_spread_is_a_noise_fault(make_bench: Callable[..., Bench]) -> None:
    def wild(batch: int, source: random.Random) -> float:
        return 200.0 * source.uniform(0.1, 2.0) ** 2 if batch == 1 else 26.0

    stage = Stage(step_ms=wild)
    result = make_bench(stage).run()
    codes = [fault.code for fault in result.faults]
    assert codes in (["noise"], ["unstable"])
    assert judge(result, [GOAL]).word == "invalid"


def test_a_lost_token_is_a_fault_that_says_which(make_bench: Callable[..., Bench]) -> None:
    result = make_bench(Stage(drop_token_in_run=9)).run()
    (fault,) = result.faults
    assert fault.code == "wrong_output" and "5 tokens instead of 6" in fault.details["what"]
    assert judge(result, [GOAL]).word == "invalid"
    assert msgspec.json.decode(msgspec.json.encode(result), type=TrialResult) == result


def test_scores_that_are_no_numbers_name_their_layer(make_bench: Callable[..., Bench]) -> None:
    result = make_bench(Stage(break_in_run=2)).run()
    (fault,) = result.faults
    assert fault.code == "wrong_output" and "layer 3" in fault.details["what"]
    assert result.pairs == ()


def test_a_wrong_answer_is_found_after_the_clock_stopped(
    make_bench: Callable[..., Bench],
) -> None:
    checked: list[tuple[str, int]] = []

    def check(
        model: Any, run: Any, request: int, precision: str, bits: int, recipe: Recipe
    ) -> WrongToken | None:
        checked.append((precision, request))
        assert model.precision == "float32"
        return WrongToken(2, 65, 9, 3.5, 0.25) if len(checked) == 10 else None

    bench = make_bench(check_output=check)
    result = bench.run()
    (fault,) = result.faults
    assert fault.code == "wrong_output" and "reference, run 2" in fault.details["what"]
    assert [precision for precision, _ in checked] == ["bfloat16"] * 8 + ["float32"] * 2
    assert len(result.pairs) == 8


def test_every_timed_run_has_one_request_checked(make_bench: Callable[..., Bench]) -> None:
    checked: list[int] = []
    bench = make_bench(check_output=lambda _, run, request, *__: checked.append(request))
    bench.run()
    assert len(checked) == 16 and len(set(checked[:8])) > 1 and set(checked[8:]) == {0}


def test_a_run_faster_than_physics_has_the_ceiling_measured_once_more(
    make_bench: Callable[..., Bench],
) -> None:
    low = msgspec.structs.replace(MACHINE.ceilings, read_bytes_per_second=1e3)
    looks: list[Ceilings] = []
    remembered: list[Ceilings] = []

    def again(before: Ceilings, work: Any, shapes: Any) -> Ceilings:
        looks.append(before)
        return MACHINE.ceilings if len(looks) == 1 else before

    bench = make_bench(measure_again=again)
    bench.runner._ceilings = low
    bench.runner._remember = remembered.append
    result = bench.run()
    assert looks == [low] and remembered == [MACHINE.ceilings]
    assert result.faults == () and result.ceilings == MACHINE.ceilings

    stubborn = make_bench(measure_again=lambda before, *_: before)
    stubborn.runner._ceilings = low
    result = stubborn.run()
    (fault,) = result.faults
    assert fault.code == "too_fast" and int(fault.details["share"]) > 105
    assert judge(result, [GOAL]).word == "invalid"


@pytest.mark.parametrize("after", [1, 10, 40, 130])
def test_an_abort_is_heard_at_the_next_step(make_bench: Callable[..., Bench], after: int) -> None:
    bench = make_bench(aborted=lambda stage: stage.steps >= after)
    with pytest.raises(Aborted):
        bench.run()
    assert bench.stage.steps == after


def test_threads_are_set_for_each_build_before_its_runs(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    bench.run(build=CANDIDATE | {"run.threads": 2}, reference=REFERENCE | {"run.threads": 1})
    assert {wanted for wanted, _ in bench.stage.threads} == {1, 2}
    assert all(wanted == real for wanted, real in bench.stage.threads)


def test_steps_are_told_at_most_twice_a_second_with_the_rates_so_far(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench()
    bench.run()
    steps = [event for event in bench.events if isinstance(event, Step)]
    seconds = bench.stage.clock.now / 1e9
    assert 3 < len(steps) <= seconds / 0.5 + 1
    told = {event.build: event.seconds_per_token for event in steps}
    assert told["reference"] == pytest.approx({"prefill": 0.040 / 16, "decode": 0.020})
    assert told["candidate"] == pytest.approx({"prefill": 0.040 / 16, "decode": 0.026 / 4})
    assert {event.job for event in bench.events} == {5}


def test_time_left_falls_to_nothing(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.run()
    left = [e.seconds_left for e in bench.events if isinstance(e, Progress) and e.phase == "pairs"]
    known = [seconds for seconds in left if seconds is not None]
    assert len(known) == len(left) and known == sorted(known, reverse=True) and known[-1] == 0
    pair = (40 + 5 * 20 + 160 + 5 * 26) / 1000
    assert known[0] == pytest.approx(8 * pair)


def test_a_timeline_runs_its_one_build(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    result = bench.run(kind="timeline", stage="gate", build=REFERENCE, bounds=(), repeats=6)
    assert len(result.singles) == 6 and result.pairs == ()
    assert len(bench.stage.runs) >= 9
    assert judge(result, []).word == "pass"
    phases = [event.phase for event in bench.events if isinstance(event, Progress)]
    assert "timeline" in phases and "pairs" not in phases


def test_a_build_this_machine_cannot_take_is_refused(make_bench: Callable[..., Bench]) -> None:
    with pytest.raises(KnobError, match="float16"):
        make_bench().run(build={"run.precision": "float16"})


def test_foreign_names_are_cleaned(make_bench: Callable[..., Bench]) -> None:
    result = make_bench().run()
    assert result.environment.model_name == "tiny"
    assert result.environment.threads == 1 and not result.environment.clock_verified


def test_a_real_tiny_model_from_spec_to_verdict(
    tiny_config: Configs, tiny_tensors: Tensors, byte_tokenizer: Any
) -> None:
    config = tiny_config()
    loaded = SimpleNamespace(
        config=config,
        tensors=tiny_tensors(config),
        tokenizer=byte_tokenizer,
        digest="e" * 64,
        name="tiny",
    )
    events: list[Event] = []
    runner = TrialRunner(Shelf(loaded), MACHINE, CAPABILITIES, events.append, lambda: False)
    result = runner.run(1, spec(looks=(2,), quality=True))
    assert len(result.pairs) == 2
    assert {fault.code for fault in result.faults} <= {"noise", "unstable"}
    for part, size in result.memory.allocated.items():
        assert result.memory.predicted[part] == pytest.approx(size, rel=0.02)
    assert result.quality is not None and 0 < result.quality.kl < 0.01
    assert result.quality.scored_tokens >= 2048
    assert result.kernel_path["linear"].endswith("bfloat16")
    assert result.reference_kernel_path["linear"].endswith("float32")
    metrics = point_estimates(Evidence.of(result))
    assert 0 < metrics["decode_ceiling_share"] < 1
    assert msgspec.json.decode(msgspec.json.encode(result), type=TrialResult) == result
    assert {"loading", "warmup", "pairs", "checking", "quality"} <= {
        event.phase for event in events if isinstance(event, Progress)
    }


@pytest.mark.model
def test_the_default_model_from_spec_to_verdict() -> None:
    from engine.detect import detect
    from engine.model.loader import load_model
    from engine.model.store import find_model

    capabilities = detect()
    machine = msgspec.structs.replace(MACHINE, fingerprint=capabilities.fingerprint)
    loaded = load_model(find_model("default"))
    runner = TrialRunner(Shelf(loaded), machine, capabilities, lambda _: None, lambda: False)
    build = {"workload.prompt": 24, "workload.output": 3}
    result = runner.run(1, spec(build=build, reference=build, looks=(2,), bounds=()))
    assert not [fault for fault in result.faults if fault.code == "wrong_output"]
    assert result.memory.predicted_bytes == pytest.approx(result.memory.allocated_bytes, rel=0.02)
    assert result.pairs[0].reference.output_digest == result.pairs[0].candidate.output_digest
