"""A serving engine of arithmetic alone: seats, slots of memory, a clock that it moves itself.

One request is prefilled a pass, as many as there are seats; then all decode. It keeps the books an
engine keeps, so that a test knows by hand what a load on it must come to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.page_map import PageMap
from engine.run.budget import BudgetExceeded
from engine.run.outputs import EngineCounters, StepOutput
from engine.schedule.sequence import SamplingParams
from engine.trial import Bound, Flood, Ledger

HELD = {"workload.prompt": 32, "workload.output": 4, "schedule.batch": 4}
ONE = HELD | {"schedule.batch": 1}
SERVED = {
    "workload.mix": "mixed",
    "workload.prompt": 96,
    "workload.output": 8,
    "workload.requests": 6,
    "workload.system": 16,
    "schedule.batch": 6,
}
SLOW = SERVED | {"run.precision": "bfloat16"}
"""The scripted server of a bfloat16 build has two seats, any other four."""

SERVED_GOAL = Bound("throughput_ratio", ">=", 1.1)


class Request:
    def __init__(self, prompt: tuple[int, ...], limit: int) -> None:
        self.prompt = prompt
        self.limit = limit
        self.given = 0


class ScriptedServer:
    """`prefill_ms` a pass and `decode_ms` a step; a slot is `slot` tokens. From the second request
    of a load on, `cached` prompt tokens are found. `clock` has `pass_ms`."""

    def __init__(
        self,
        clock: Any,
        seats: int = 2,
        slot: int = 100,
        cached: int = 0,
        prefill_ms: float = 30.0,
        decode_ms: float = 10.0,
        flood_at: int | None = None,
    ) -> None:
        self.clock = clock
        self.seats, self.slot, self.cached = seats, slot, cached
        self.prefill_ms, self.decode_ms = prefill_ms, decode_ms
        self.flood_at = flood_at
        self.lies: dict[str, int] = {}
        self.kernel_path = {"head": "plain float32"}
        self.asked: list[SamplingParams] = []
        self.resets = 0
        self.reset()

    def reset(self) -> None:
        self.resets += 1
        self.steps = 0
        self.most_held_tokens = 0
        self.line: dict[int, Request] = {}
        self.live: dict[int, Request] = {}
        self.counts = {"prompt_tokens": 0, "cached_tokens": 0, "prefilled_tokens": 0}

    def add_request(self, prompt_ids: Sequence[int], params: SamplingParams) -> int:
        self.asked.append(params)
        number = 100 + len(self.line) + len(self.live)
        self.line[number] = Request(tuple(prompt_ids), params.max_tokens)
        return number

    @property
    def has_work(self) -> bool:
        return bool(self.line or self.live)

    def step(self, on_part: object = None) -> StepOutput:
        self.steps += 1
        if self.flood_at == self.steps:
            raise BudgetExceeded(Flood(self.ledger(), 900, 500, len(self.live), 4, 3))
        if self.line and len(self.live) < self.seats:
            return self._prefill()
        self.clock.pass_ms(self.decode_ms)
        return self._speak("decode", tuple(self.live), len(self.live), {})

    def _prefill(self) -> StepOutput:
        self.clock.pass_ms(self.prefill_ms)
        number = next(iter(self.line))
        request = self.live[number] = self.line.pop(number)
        found = self.cached if self.counts["prompt_tokens"] else 0
        rows = len(request.prompt) - found
        self.counts["prompt_tokens"] += len(request.prompt)
        self.counts["cached_tokens"] += found
        self.counts["prefilled_tokens"] += rows
        return self._speak("prefill", (number,), rows, {number: found})

    def _speak(
        self, phase: Any, ids: tuple[int, ...], rows: int, admitted: dict[int, int]
    ) -> StepOutput:
        for number in ids:
            request = self.live[number]
            request.given += 1
        self.most_held_tokens = max(self.most_held_tokens, self.held_tokens)
        for number in ids:
            request = self.live[number]
            if request.given == request.limit:
                del self.live[number]
        return StepOutput(
            phase, ids, rows, dict.fromkeys(ids, (7,)), (), {}, admitted, preempted=()
        )

    @property
    def counters(self) -> EngineCounters:
        return EngineCounters(**(self.counts | self.lies))

    @property
    def held_tokens(self) -> int:
        return sum(len(one.prompt) + one.given - 1 for one in self.live.values())

    @property
    def reserved_tokens(self) -> int:
        return self.slot * len(self.live)

    @property
    def running(self) -> int:
        return len(self.live)

    @property
    def waiting(self) -> int:
        return len(self.line)

    def allocated(self) -> dict[str, int]:
        return {"weights": 1000, "kv": 4 * self.slot * self.seats, "activations": 9, "scratch": 1}

    def ledger(self) -> Ledger:
        held = self.held_tokens
        return Ledger(10**6, self.allocated(), 4 * held, held)

    def page_map(self) -> PageMap:
        cells = "F" * len(self.live) + "." * (self.seats - len(self.live))
        return PageMap("contiguous", self.slot, cells, self.held_tokens, self.reserved_tokens)
