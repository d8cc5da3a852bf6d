"""A load on the clock: times, counts and means against those of a load played by hand."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from scripted_server import ScriptedServer
from scripted_trials import Clock

from engine.load_metrics import check_load
from engine.measure.served import CountFault, LoadRequest, run_load
from engine.measure.timing import OutputFault, output_digest
from engine.metrics import MetricError

LOAD = (
    LoadRequest("document", tuple(range(40)), 4),
    LoadRequest("chat", tuple(range(100, 110)), 2),
    LoadRequest("chat", tuple(range(200, 220)), 3),
)
"""On two seats, 30 ms a prefill and 10 ms a step:

 30 ms  document runs      held 40, reserved 100, running 1
 60     first chat runs         50           200          2
 70     both speak: chat 1 ends 41           100          1
100     second chat runs        61           200          2
110     both speak              63           200          2
120     both speak, both end     0             0          0
"""


@pytest.fixture
def clock() -> Clock:
    return Clock(5_000_000)


def test_every_request_s_times_are_those_of_its_own_steps(clock: Clock) -> None:
    sample = run_load(ScriptedServer(clock), LOAD, clock).sample
    document, first, second = sample.requests
    assert document.queued == 0.0 and document.ttft == pytest.approx(0.030)
    assert document.gaps == pytest.approx((0.040, 0.040, 0.010))
    assert document.finished == pytest.approx(0.120)
    assert first.queued == pytest.approx(0.030) and first.ttft == pytest.approx(0.060)
    assert first.gaps == pytest.approx((0.010,))
    assert second.queued == pytest.approx(0.070) and second.finished == pytest.approx(0.120)
    assert [one.kind for one in sample.requests] == ["document", "chat", "chat"]
    check_load(sample)


def test_passes_and_means_are_counted_after_each_pass(clock: Clock) -> None:
    sample = run_load(ScriptedServer(clock), LOAD, clock).sample
    assert (sample.prefill_passes, sample.decode_steps) == (3, 3)
    assert sample.prefill_seconds == pytest.approx(0.090)
    assert sample.decode_seconds == pytest.approx(0.030)
    assert sample.wall_seconds == pytest.approx(0.120)
    assert sample.prefilled_tokens == 70 and sample.recomputed_tokens == 0
    assert sample.held_tokens == pytest.approx((40 + 50 + 41 + 61 + 63 + 0) / 6)
    assert sample.reserved_tokens == pytest.approx(800 / 6)
    assert sample.mean_running == pytest.approx(8 / 6)
    assert (sample.peak_live_tokens, sample.most_running) == (65, 2)


def test_prompts_and_outputs_come_back_in_order(clock: Clock) -> None:
    server = ScriptedServer(clock)
    episode = run_load(server, LOAD, clock)
    assert all(params.ignore_eos and params.temperature == 0 for params in server.asked)
    assert episode.prompts == tuple(one.prompt for one in LOAD)
    assert episode.outputs == ((7,) * 4, (7,) * 2, (7,) * 3)
    assert episode.sample.output_digest == output_digest(episode.outputs)


def test_tokens_found_in_the_cache_are_each_request_s_own(clock: Clock) -> None:
    sample = run_load(ScriptedServer(clock, cached=8), LOAD, clock).sample
    assert [one.cached_tokens for one in sample.requests] == [0, 8, 8]
    assert sample.prefilled_tokens == 70 - 16


def test_what_lies_between_steps_belongs_to_no_phase_and_to_no_step(clock: Clock) -> None:
    heard: list[tuple[str, int, int]] = []

    def listen(phase: str, sequences: int, finished: int) -> None:
        assert not gc.isenabled()
        heard.append((phase, sequences, finished))
        clock.pass_ms(5)

    sample = run_load(ScriptedServer(clock), LOAD, clock, listen).sample
    assert sample.other_seconds == pytest.approx(5 * 0.005)  # the last word is spoken afterwards
    assert sample.prefill_seconds == pytest.approx(0.090)
    assert heard == [
        ("prefill", 1, 0), ("prefill", 1, 0), ("decode", 2, 1),
        ("prefill", 1, 1), ("decode", 2, 1), ("decode", 2, 3),
    ]  # fmt: skip
    assert gc.isenabled()


def test_every_load_starts_from_an_empty_engine(clock: Clock) -> None:
    server = ScriptedServer(clock)
    before = server.resets
    first = run_load(server, LOAD, clock).sample
    assert server.resets == before + 1
    assert run_load(server, LOAD, clock).sample.output_digest == first.output_digest


def test_a_first_request_that_finds_something_is_a_fault(clock: Clock) -> None:
    """Nothing of an earlier load may be left: a warm cache would be sold as speed."""

    class Warm(ScriptedServer):
        def reset(self) -> None:
            super().reset()
            self.counts["prompt_tokens"] = 1  # the first finds what later ones find

        @property
        def counters(self) -> Any:
            self.lies = {"prompt_tokens": self.counts["prompt_tokens"] - 1}
            return super().counters

    with pytest.raises(MetricError, match="finds an empty cache"):
        run_load(Warm(clock, cached=8), LOAD, clock)


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        ({"prefilled_tokens": 69}, "69 prefilled tokens and its steps told of 70"),
        ({"cached_tokens": 1}, "1 cached tokens"),
        ({"prompt_tokens": 71}, "71 prompt tokens"),
        ({"preemptions": 2}, "2 preemptions and its steps told of 0"),
    ],
)
def test_counters_that_do_not_agree_with_the_steps_are_a_fault(
    clock: Clock, lie: dict[str, int], told: str
) -> None:
    server = ScriptedServer(clock)
    server.lies = lie
    with pytest.raises(CountFault, match=told):
        run_load(server, LOAD, clock)


def test_a_request_that_gives_too_few_tokens_is_a_fault(clock: Clock) -> None:
    class Hasty(ScriptedServer):
        def add_request(self, prompt_ids: Any, params: Any) -> int:
            number = super().add_request(prompt_ids, params)
            if len(prompt_ids) == 40:
                self.line[number].limit = 3
            return number

    with pytest.raises(OutputFault, match="request 0 gave 3 tokens instead of 4"):
        run_load(Hasty(clock), LOAD, clock)
