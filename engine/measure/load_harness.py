"""Whole loads served by one build, as a served trial times them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import msgspec

from engine.measure.harness import Harness, OnBench
from engine.measure.served import LoadEpisode, LoadRequest, run_load
from engine.measure.timing import Phase, warm_up
from engine.messages import Pages
from engine.trial import LoadSample, PhaseWork

Load = Sequence[LoadRequest]
CountWork = Callable[[LoadSample], PhaseWork]
"""What a served load could not avoid."""


class LoadHarness(Harness):
    """Serves one build's loads; `timed` keeps every one that was timed.

    A load lasts far longer than the shortest timed unit, so each is one.
    """

    def __init__(self, build: OnBench, count_work: CountWork) -> None:
        super().__init__(build)
        self._timed: list[LoadEpisode] = []
        self._samples: list[LoadSample] = []
        self._count_work = count_work

    @property
    def timed(self) -> Sequence[LoadEpisode]:
        return self._timed

    def warm_up(self, draw: Callable[[], Load]) -> None:
        """Drop loads until stable. `draw` gives loads of one shape, or none would ever agree."""

        def run() -> float:
            episode = self._episode(draw())
            self._samples = [episode.sample]
            return episode.sample.wall_seconds

        self.warmed = warm_up(run, self._clock)

    def run(self, requests: Load) -> LoadSample:
        """One timed load.

        Raises:
            OutputFault: a request gave too few or too many tokens.
            CountFault: the engine's counters and its steps do not agree.
            Flooded: the memory budget broke.
            Aborted: the player stopped the trial.
        """
        episode = self._episode(requests)
        self._count_hits()
        sample = msgspec.structs.replace(episode.sample, work=self._count_work(episode.sample))
        self._timed.append(episode)
        self._samples.append(sample)
        return sample

    def rates(self) -> Mapping[str, float]:
        """Seconds a prefilled row, and a decoded token, took at the median load."""
        if not self._samples:
            return {}
        loads = self._samples
        return {
            "prefill": median(one.prefill_seconds / one.prefilled_tokens for one in loads),
            "decode": median(
                one.decode_seconds / (one.output_tokens - len(one.requests)) for one in loads
            ),
        }

    def _episode(self, requests: Load) -> LoadEpisode:
        with self._running():
            return run_load(self.engine, requests, self._clock, self._on_step, self.config.sampling)

    def _on_step(self, phase: Phase, sequences: int, finished: int) -> None:
        self.desk.step(phase, self.side, sequences, finished, self.rates)
        self._watch_memory()
        if self._build.tell_memory:
            self.desk.pages(lambda job: self._pages(job, finished))

    def _pages(self, job: int, finished: int) -> Pages:
        engine, counters = self.engine, self.engine.counters
        return Pages(
            job=job,
            build=self.side,
            pages=engine.page_map(),
            running=engine.running,
            waiting=engine.waiting,
            finished=finished,
            preemptions=counters.preemptions,
            hit_tokens=counters.cached_tokens,
        )
