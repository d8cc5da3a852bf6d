"""Timing on a clock that tells the time it is told to."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from engine.config import DraftConfig, EngineConfig, WorkloadConfig
from engine.measure.harness import OnBench
from engine.measure.run_harness import RunHarness
from engine.measure.timing import (
    WARM_UP_FEWEST,
    Episode,
    OutputFault,
    collector_off,
    episodes_for,
    merge,
    output_digest,
    run_episode,
    warm_up,
)
from engine.metrics import check_sample, tpot
from engine.schedule.sequence import SamplingParams
from engine.speculate.speculator import Verified
from engine.trial import DraftCounters


@dataclass
class FakeClock:
    """Nanoseconds; moves only when told."""

    now: int = 0

    def __call__(self) -> int:
        return self.now

    def pass_ms(self, milliseconds: float) -> None:
        self.now += round(milliseconds * 1e6)


@dataclass
class ScriptedEngine:
    """Prefills one request a step, then decodes all together; each step takes its given time."""

    clock: FakeClock
    prefill_ms: float = 30.0
    decode_ms: float = 10.0
    adding_ms: float = 1.0
    drop_token_at: int | None = None
    requests: dict[int, list[int]] = field(default_factory=dict)
    params: SamplingParams | None = None
    waiting: list[int] = field(default_factory=list)
    resets: int = 0
    steps: int = 0
    collected_while_timed: bool = False

    @property
    def held_tokens(self) -> int:
        """Two a prompt, and a token given a step ago, of the requests that have begun."""
        return sum(1 + len(tokens) for tokens in self.requests.values() if tokens)

    @property
    def most_held_tokens(self) -> int:
        return self.held_tokens  # nothing leaves before the next reset

    def add_request(self, prompt_ids: Sequence[int], params: SamplingParams) -> int:
        self.clock.pass_ms(self.adding_ms)
        self.params = params
        number = 100 + len(self.requests) + self.resets * 1000
        self.requests[number] = []
        self.waiting.append(number)
        return number

    @property
    def has_work(self) -> bool:
        assert self.params is None or self.params.ignore_eos
        limit = 0 if self.params is None else self.params.max_tokens
        return any(len(tokens) < limit for tokens in self.requests.values()) and self.steps < 500

    def step(self, on_part: object = None) -> SimpleNamespace:
        self.steps += 1
        self.collected_while_timed |= gc.isenabled()
        if self.waiting:
            self.clock.pass_ms(self.prefill_ms)
            number = self.waiting.pop(0)
            self.requests[number].append(7)
            return SimpleNamespace(phase="prefill", tokens={number: (7,)}, drafts={})
        self.clock.pass_ms(self.decode_ms)
        given = dict.fromkeys(self.requests, (8,))
        for tokens in self.requests.values():
            tokens.append(8)
        if self.drop_token_at == self.steps:
            given.popitem()
        return SimpleNamespace(phase="decode", tokens=given, drafts={})

    def reset(self) -> None:
        self.resets += 1
        self.requests.clear()
        self.waiting.clear()


def test_a_run_is_split_into_its_phases() -> None:
    clock = FakeClock(5_000_000)
    engine = ScriptedEngine(clock)
    episode = run_episode(engine, [[1, 2, 3]] * 2, 4, clock)
    sample = episode.sample
    assert (sample.batch, sample.prompt_tokens, sample.output_tokens) == (2, 3, 4)
    assert sample.other_seconds == pytest.approx(0.002)
    assert sample.prefill_seconds == pytest.approx(0.060)
    assert sample.step_seconds == pytest.approx((0.010,) * 3)
    assert sample.ttft == pytest.approx((0.032, 0.062))
    assert sample.wall_seconds == pytest.approx(0.092)
    assert episode.outputs == ((7, 8, 8, 8),) * 2
    check_sample(sample)
    assert tpot(sample) == pytest.approx(((0.092 - 0.032) + (0.092 - 0.062)) / 2 / 3)


def test_the_most_tokens_held_are_those_between_two_passes() -> None:
    """Two prompts of 2 tokens: 2, 4, then two more each step, whatever the answers' last were."""
    clock = FakeClock()
    engine = ScriptedEngine(clock)
    assert run_episode(engine, [[1, 2]] * 2, 4, clock).sample.peak_live_tokens == 2 * (2 + 3)


def test_time_between_steps_belongs_to_neither_phase() -> None:
    clock = FakeClock()
    heard: list[tuple[str, int]] = []

    def slow_listener(phase: str, number: int) -> None:
        heard.append((phase, number))
        clock.pass_ms(2)

    sample = run_episode(ScriptedEngine(clock), [[1]], 3, clock, slow_listener).sample
    assert heard == [("prefill", 1), ("decode", 1), ("decode", 2)]
    assert sample.step_seconds == pytest.approx((0.010, 0.010))
    # the listener's last call comes after the last step, so after the run
    assert sample.other_seconds == pytest.approx(0.001 + 2 * 0.002)


def test_a_missing_token_is_a_fault_and_not_a_fast_run() -> None:
    clock = FakeClock()
    with pytest.raises(OutputFault, match="request 1 gave 3 tokens instead of 4"):
        run_episode(ScriptedEngine(clock, drop_token_at=4), [[1], [2]], 4, clock)


def test_the_collector_rests_while_the_clock_runs() -> None:
    clock = FakeClock()
    engine = ScriptedEngine(clock)
    assert gc.isenabled()
    run_episode(engine, [[1]], 3, clock)
    assert not engine.collected_while_timed and gc.isenabled()
    with pytest.raises(RuntimeError), collector_off():
        raise RuntimeError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_off():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("seconds", "episodes"), [(1.0, 1), (0.05, 1), (0.0499, 2), (0.02, 3), (0.001, 50), (0.0, 1000)]
)
def test_a_timed_unit_lasts_fifty_milliseconds(seconds: float, episodes: int) -> None:
    assert episodes_for(seconds) == episodes


def test_a_units_sample_is_the_mean_of_its_episodes_and_still_adds_up() -> None:
    clock = FakeClock()
    fast = run_episode(ScriptedEngine(clock, decode_ms=10), [[1]], 3, clock)
    slow = run_episode(ScriptedEngine(clock, decode_ms=20, prefill_ms=50), [[1]], 3, clock)
    merged = merge([fast, slow])
    assert merged.step_seconds == pytest.approx((0.015, 0.015))
    assert merged.prefill_seconds == pytest.approx(0.040)
    assert merged.peak_live_tokens == 1 + 3
    check_sample(merged)
    assert merge([fast]) is fast.sample
    assert merged.output_digest != fast.sample.output_digest


def test_the_digest_tells_outputs_apart() -> None:
    assert output_digest([[1, 2], [3]]) != output_digest([[1], [2, 3]])
    assert output_digest([[12]]) != output_digest([[1, 2]])
    assert output_digest([[1, 2], [3]]) == output_digest([(1, 2), (3,)])


def scripted_runs(clock: FakeClock, seconds: Sequence[float]) -> Callable[[], float]:
    script = iter(seconds)

    def run() -> float:
        taken = next(script)
        clock.pass_ms(taken * 1000)
        return taken

    return run


@pytest.mark.parametrize(
    ("seconds", "runs", "settled"),
    [
        ((1.0, 1.0, 1.0), 3, True),
        ((3.0, 2.0, 1.0, 1.04), 4, True),
        ((1.0, 1.0, 1.06, 1.07), 4, True),
        ((1.0, 1.5) * 5, 10, False),
        ((9.0, 5.0, 7.0), 3, False),  # 21 s have passed
        ((25.0, 1.0, 1.0), 3, True),  # never fewer than three
    ],
)
def test_warm_up_drops_runs_until_two_agree(
    seconds: tuple[float, ...], runs: int, settled: bool
) -> None:
    clock = FakeClock()
    warmed = warm_up(scripted_runs(clock, seconds), clock)
    assert (warmed.runs, warmed.settled, warmed.seconds) == (runs, settled, seconds[runs - 1])


def test_an_episode_keeps_what_was_asked_and_given() -> None:
    clock = FakeClock()
    episode = run_episode(ScriptedEngine(clock), [(5, 6)], 2, clock)
    assert isinstance(episode, Episode)
    assert episode.prompts == ((5, 6),) and episode.outputs == ((7, 8),)


@dataclass
class DraftingEngine(ScriptedEngine):
    """Drafts two tokens a step for every request: 3 ms, and 8 ms to verify them. In turn both
    stand, none does, and one does."""

    def step(self, on_part: Callable[[str], None] = lambda _: None) -> SimpleNamespace:
        if self.waiting:
            return super().step()
        assert self.params is not None
        self.clock.pass_ms(3.0)
        on_part("draft")
        self.clock.pass_ms(8.0)
        on_part("verify")
        self.clock.pass_ms(1.0)
        given, drafts = {}, {}
        for place, (number, tokens) in enumerate(self.requests.items()):
            left = self.params.max_tokens - len(tokens)
            if left == 0:
                continue
            drafted = min(2, left - 1)
            accepted = min((2, 0, 1)[(self.steps + place) % 3], drafted)
            tokens.extend([8] * (accepted + 1))
            given[number] = (8,) * (accepted + 1)
            if drafted:
                drafts[number] = Verified((8,) * drafted, accepted)
        self.steps += 1
        return SimpleNamespace(phase="decode", tokens=given, drafts=drafts)


def test_a_drafted_run_tells_its_parts_and_what_became_of_its_drafts() -> None:
    clock = FakeClock()
    episode = run_episode(DraftingEngine(clock), [[1], [2]], 8, clock, draft_length=2)
    sample = episode.sample
    assert sample.draft is not None and all(len(tokens) == 8 for tokens in episode.outputs)
    # Two prefills, so the turns begin with "one stands" for the first and "both" for the second;
    # the last token of each has no room for a draft.
    assert sample.given == ((2, 3, 1, 1), (3, 1, 2, 1))
    assert sample.draft.counters == DraftCounters(6, 2, offered=(6, 5), stood=(4, 2))
    steps = len(sample.step_seconds)
    assert sample.step_seconds == pytest.approx((0.012,) * steps)
    assert sample.draft.draft_seconds == pytest.approx(0.003 * steps)
    assert sample.draft.verify_seconds == pytest.approx(0.008 * steps)
    assert max(sample.finished) == pytest.approx(sample.wall_seconds)


def test_drafted_runs_of_unequal_steps_are_merged_so_that_sums_hold() -> None:
    clock = FakeClock()
    engine = DraftingEngine(clock)
    episodes = [
        run_episode(engine, [[1]], 6, clock, draft_length=2),
        run_episode(engine, [[1]], 6, clock, draft_length=2),
        run_episode(engine, [[1]], 6, clock, draft_length=2),
    ]
    merged = merge(episodes)
    check_sample(merged)
    counts = {len(episode.sample.step_seconds) for episode in episodes}
    assert len(counts) > 1 and len(merged.step_seconds) == max(counts)
    walls = [episode.sample.wall_seconds for episode in episodes]
    assert merged.wall_seconds == pytest.approx(sum(walls) / 3)
    assert merged.draft is not None
    drafts = [e.sample.draft for e in episodes if e.sample.draft is not None]
    assert merged.draft.counters.drafted == sum(draft.counters.drafted for draft in drafts)


class Bench(DraftingEngine):
    """On it runs whose drafts stood differ by half; nothing is said of memory."""

    held_tokens = most_held_tokens = property(lambda _: 0)


def test_a_warm_up_settles_whatever_the_text_lets_stand() -> None:
    """Fresh prompts need seven steps, or four; every step takes as long."""
    clock = FakeClock()
    desk = SimpleNamespace(step=lambda *_: None, account=lambda *_: None)
    config = EngineConfig(WorkloadConfig(1, 12), draft=DraftConfig("ngram", 2))
    engine = Bench(clock)
    bench = OnBench("candidate", config, engine, clock, desk)  # type: ignore[arg-type]
    harness = RunHarness(bench)
    walls: list[float] = []

    def draw(count: int, length: int) -> list[list[int]]:
        engine.steps = (0, 1, 2)[len(walls) % 3]  # where in its turns the run begins
        walls.append(clock.now)
        return [[1]]

    harness.warm_up(draw)
    assert harness.warmed.settled and harness.warmed.runs == WARM_UP_FEWEST
