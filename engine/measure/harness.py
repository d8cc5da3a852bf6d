"""One build on the bench: its engine, its threads, and every run it has made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Literal, Protocol

import torch

from engine.config import EngineConfig
from engine.measure.reporter import Reporter
from engine.measure.shelf import ShelfTokenizer
from engine.measure.timing import (
    Clock,
    Episode,
    Phase,
    Prompts,
    TimedEngine,
    WarmUp,
    collector_off,
    episodes_for,
    merge,
    run_episode,
    warm_up,
)
from engine.metrics import decode_throughput, prefill_throughput
from engine.schedule.sequence import SamplingParams
from engine.trial import RunSample

SAMPLE_QUESTION, SAMPLE_TOKENS = "How many days are in a week?", 24

Side = Literal["candidate", "reference"]


class BuildEngine(TimedEngine, Protocol):
    """What a trial needs of an engine: running, its account, and the kernels that ran."""

    def allocated(self) -> dict[str, int]: ...

    @property
    def kernel_path(self) -> dict[str, str]: ...


Draw = Callable[[int, int], Prompts]
"""(count, length) -> fresh prompts."""


class Harness:
    """Runs one build's episodes; `timed` keeps the first of every timed unit, to be checked."""

    def __init__(
        self, side: Side, config: EngineConfig, engine: BuildEngine, clock: Clock, desk: Reporter
    ) -> None:
        self.side: Side = side
        self.config = config
        self.engine = engine
        self.timed: list[Episode] = []
        self.warmed = WarmUp(0, False, 0.0)
        self._clock = clock
        self._desk = desk
        self._episodes = 1
        self._samples: list[RunSample] = []

    def warm_up(self, draw: Draw) -> None:
        """Drop runs until stable, and learn how many episodes fill a timed unit."""

        def run() -> float:
            batch, length = self.config.schedule.batch, self.config.workload.prompt
            episode = self._episode(draw(batch, length))
            self._samples = [episode.sample]
            return episode.sample.wall_seconds

        self.warmed = warm_up(run, self._clock)
        self._episodes = episodes_for(self.warmed.seconds)

    @property
    def prompts_needed(self) -> int:
        """Prompts of one timed unit."""
        return self.config.schedule.batch * self._episodes

    def run(self, prompts: Prompts) -> RunSample:
        """One timed unit on the first of `prompts`, each cut to this build's prompt length.

        Raises:
            OutputFault: a request gave too few or too many tokens.
            Aborted: the player stopped the trial.
        """
        batch, length = self.config.schedule.batch, self.config.workload.prompt
        with collector_off():
            episodes = [
                self._episode([prompt[:length] for prompt in prompts[first : first + batch]])
                for first in range(0, self.prompts_needed, batch)
            ]
        sample = merge(episodes)
        self.timed.append(episodes[0])
        self._samples.append(sample)
        return sample

    def answer(self, tokenizer: ShelfTokenizer) -> str:
        """A few words from this build: its answer to a question, or what its first timed run said
        where the model does not chat or the question does not fit the build's cache."""
        room = self.config.workload.prompt + self.config.workload.output
        try:
            prompt = tokenizer.chat([("user", SAMPLE_QUESTION)])
        except ValueError:
            prompt = []
        if not prompt or len(prompt) + SAMPLE_TOKENS > room:
            first = self.timed[0].outputs[0] if self.timed else ()
            return tokenizer.decode(list(first))
        self.engine.reset()
        request = self.engine.add_request(prompt, SamplingParams(max_tokens=SAMPLE_TOKENS))
        spoken: list[int] = []
        while self.engine.has_work:
            self._desk.check()
            token = self.engine.step().tokens.get(request)
            if token is not None:
                spoken.append(token)
        return tokenizer.decode(spoken)

    def _episode(self, prompts: Prompts) -> Episode:
        torch.set_num_threads(self.config.run.threads)
        return run_episode(
            self.engine, prompts, self.config.workload.output, self._clock, self._on_step
        )

    def _on_step(self, phase: Phase, number: int) -> None:
        self._desk.step(phase, self.side, self.config.schedule.batch, number, self.rates)

    def rates(self) -> Mapping[str, float]:
        """Median seconds a token took so far, by phase; empty before the first run has ended."""
        if not self._samples:
            return {}
        return {
            "prefill": median(1 / prefill_throughput(sample) for sample in self._samples),
            "decode": median(1 / decode_throughput(sample) for sample in self._samples),
        }
