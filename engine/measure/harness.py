"""One build on the bench: its engine, its threads, and what its cache was seen to hold."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from msgspec.structs import replace

from engine.config import EngineConfig
from engine.measure.asking import asked_for
from engine.measure.reporter import Reporter, Side
from engine.measure.served import ServingEngine
from engine.measure.shelf import ShelfTokenizer
from engine.measure.timing import Answered, Clock, WarmUp
from engine.page_map import PageMap
from engine.run.budget import BudgetExceeded
from engine.trial import Flood, Ledger

SAMPLE_QUESTION, SAMPLE_TOKENS = "How many days are in a week?", 24


class BuildEngine(ServingEngine, Protocol):
    """What a trial needs of an engine: running, its account, and the kernels that ran."""

    def allocated(self) -> dict[str, int]: ...

    def ledger(self) -> Ledger: ...

    def page_map(self) -> PageMap: ...

    @property
    def waiting(self) -> int: ...

    @property
    def kernel_path(self) -> dict[str, str]: ...


class Flooded(Exception):
    """A build broke its memory budget; its engine has been emptied and can go on."""

    def __init__(self, side: Side, flood: Flood, message: str) -> None:
        super().__init__(message)
        self.side: Side = side
        self.flood = flood


@dataclass(frozen=True)
class OnBench:
    """A build's engine, the clock to time it by, and the desk to tell what it does.

    With `tell_memory` the interface hears of its memory while runs go on.
    """

    side: Side
    config: EngineConfig
    engine: BuildEngine
    clock: Clock
    desk: Reporter
    tell_memory: bool = False


class Harness(ABC):
    """What every trial does with a build, whatever it runs.

    `timed` keeps one run of every timed unit, to be checked; `ledger` is the account of the moment
    when most was held.
    """

    def __init__(self, build: OnBench) -> None:
        self.side = build.side
        self.config = build.config
        self.engine = build.engine
        self.warmed = WarmUp(0, False, 0.0)
        self.ledger: Ledger | None = None
        self._build = build
        self._clock = build.clock
        self.desk = build.desk
        self._most_held = 0
        self._prompt_tokens = 0
        self._hit_tokens = 0

    @property
    @abstractmethod
    def timed(self) -> Sequence[Answered]: ...

    @abstractmethod
    def rates(self) -> Mapping[str, float]:
        """Median seconds a token took so far, by phase; empty before the first run has ended."""

    @property
    def hit_rate(self) -> float:
        """Share of the timed prompts' tokens that were found in the prefix cache: 0 to 1."""
        return self._hit_tokens / self._prompt_tokens if self._prompt_tokens else 0.0

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
        params = asked_for(self.config.sampling, prompt, SAMPLE_TOKENS)
        request = self.engine.add_request(prompt, params)
        spoken: list[int] = []
        while self.engine.has_work:
            self.desk.check()
            spoken.extend(self.engine.step().tokens.get(request, ()))
        return tokenizer.decode(spoken)

    @contextmanager
    def _running(self) -> Iterator[None]:
        """A run with this build's threads; a broken budget is told at once.

        Raises:
            Flooded: the budget broke. The engine is empty then.
        """
        torch.set_num_threads(self.config.run.threads)
        try:
            yield
        except BudgetExceeded as error:
            self.engine.reset()
            self.desk.flooded(self.side, error.flood)
            raise Flooded(self.side, error.flood, str(error)) from error

    def _count_hits(self) -> None:
        """Add the run that has just ended to the prefix hit rate."""
        counters = self.engine.counters
        self._prompt_tokens += counters.prompt_tokens
        self._hit_tokens += counters.cached_tokens

    def _watch_memory(self) -> None:
        """Between steps: keep the account of the fullest moment, and tell the present one.

        The fullest moment of all is within a pass whose requests end with it: that is counted.
        """
        held = self.engine.held_tokens
        if held > self._most_held:
            self._most_held = held
            self.ledger = self.engine.ledger()
        most = self.engine.most_held_tokens
        if self.ledger is not None and most > self.ledger.live_tokens > 0:
            each = self.ledger.held_bytes // self.ledger.live_tokens
            self.ledger = replace(self.ledger, live_tokens=most, held_bytes=most * each)
            self._most_held = most
        if self._build.tell_memory:
            self.desk.account(self.side, self.engine.ledger)
