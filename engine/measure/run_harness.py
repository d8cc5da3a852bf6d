"""Runs of one build: equal requests started together, as timeline, hold and paired trials time
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from engine.measure.harness import Harness, OnBench
from engine.measure.timing import (
    Episode,
    Phase,
    Prompts,
    collector_off,
    episodes_for,
    merge,
    run_episode,
    warm_up,
)
from engine.run_metrics import decode_throughput, prefill_throughput, steady_seconds
from engine.trial import RunSample

Draw = Callable[[int, int], Prompts]
"""(count, length) -> fresh prompts."""


class RunHarness(Harness):
    """Runs one build's episodes; `timed` keeps the first of every timed unit."""

    def __init__(self, build: OnBench) -> None:
        super().__init__(build)
        self._timed: list[Episode] = []
        self._episodes = 1
        self._samples: list[RunSample] = []

    @property
    def timed(self) -> Sequence[Episode]:
        return self._timed

    def warm_up(self, draw: Draw) -> None:
        """Drop runs until stable, and learn how many episodes fill a timed unit.

        Every run has a fresh prompt; where a build drafts, how many steps that takes says nothing
        of the machine (see `steady_seconds`).
        """

        def run() -> float:
            batch, length = self.config.schedule.batch, self.config.workload.prompt
            episode = self._episode(draw(batch, length))
            self._samples = [episode.sample]
            self._episodes = episodes_for(episode.sample.wall_seconds)
            return steady_seconds(episode.sample)

        self.warmed = warm_up(run, self._clock)

    @property
    def prompts_needed(self) -> int:
        """Prompts of one timed unit."""
        return self.config.schedule.batch * self._episodes

    def run(self, prompts: Prompts) -> RunSample:
        """One timed unit on the first of `prompts`, each cut to this build's prompt length.

        Raises:
            OutputFault: a request gave too few or too many tokens.
            Flooded: the memory budget broke.
            Aborted: the player stopped the trial.
        """
        batch, length = self.config.schedule.batch, self.config.workload.prompt
        episodes = []
        with collector_off():
            for first in range(0, self.prompts_needed, batch):
                own = [prompt[:length] for prompt in prompts[first : first + batch]]
                episodes.append(self._episode(own))
                self._count_hits()
        sample = merge(episodes)
        self._timed.append(episodes[0])
        self._samples.append(sample)
        return sample

    def rates(self) -> Mapping[str, float]:
        if not self._samples:
            return {}
        return {
            "prefill": median(1 / prefill_throughput(sample) for sample in self._samples),
            "decode": median(1 / decode_throughput(sample) for sample in self._samples),
        }

    def _episode(self, prompts: Prompts) -> Episode:
        with self._running():
            return run_episode(
                self.engine,
                prompts,
                self.config.workload.output,
                self._clock,
                self._on_step,
                self.config.draft.most,
                self.config.sampling,
            )

    def _on_step(self, phase: Phase, number: int) -> None:
        self.desk.step(phase, self.side, self.config.schedule.batch, number, self.rates)
        self._watch_memory()
