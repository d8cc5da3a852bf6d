"""An engine and a clock that do as they are told, for trials that run no model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from known_machines import make_capabilities

from engine.config import EngineConfig
from engine.drafters import NO_OTHERS
from engine.machine import PROFILE_VERSION, Ceilings, MachineProfile
from engine.model.config import ModelConfig
from engine.price import price
from engine.run.budget import BudgetExceeded
from engine.run.outputs import EngineCounters
from engine.run.runner import NonFiniteLogits
from engine.schedule.sequence import SamplingParams
from engine.trial import Bound, Flood, Ledger, TrialSpec

CAPABILITIES = make_capabilities(precisions={"float32": "", "bfloat16": "", "float16": "not here"})
MACHINE = MachineProfile(
    version=PROFILE_VERSION,
    fingerprint=CAPABILITIES.fingerprint,
    measured_at="",
    threads=1,
    wait_policy="passive",
    ceilings=Ceilings(1e12, {"float32": 1e15, "bfloat16": 1e15}, 1e-9),
    noise=0.01,
)
REFERENCE = {"workload.prompt": 16, "workload.output": 6, "schedule.batch": 1}
CANDIDATE = REFERENCE | {"schedule.batch": 4, "run.precision": "bfloat16"}
GOAL = Bound("tpot_ratio", "<=", 1.6)


@dataclass
class Clock:
    now: int = 0

    def __call__(self) -> int:
        return self.now

    def pass_ms(self, milliseconds: float) -> None:
        self.now += round(milliseconds * 1e6)


@dataclass
class Stage:
    """What the fake engines do: step times by batch, and what goes wrong at which run."""

    clock: Clock = field(default_factory=Clock)
    step_ms: Callable[[int, random.Random], float] = lambda batch, _: 20.0 if batch == 1 else 26.0
    drop_token_in_run: int | None = None
    break_in_run: int | None = None
    source: random.Random = field(default_factory=lambda: random.Random(4))
    runs: list[tuple[int, tuple[tuple[int, ...], ...]]] = field(default_factory=list)
    threads: list[tuple[int, int]] = field(default_factory=list)
    steps: int = 0
    flood_in_run: int | None = None
    resets: int = 0


class FakeEngine:
    """Gives token 65 to everybody; prefill takes 40 ms a request."""

    def __init__(self, stage: Stage, model: ModelConfig, config: EngineConfig) -> None:
        self.stage = stage
        self.model = model
        self.config = config
        self.kernel_path = {"head": "plain float32", "linear": "plain float32"}
        self.reset()

    def reset(self) -> None:
        self.stage.resets += 1
        self.prompts: list[tuple[int, ...]] = []
        self.given: dict[int, int] = {}
        self.limit = 0
        self.prefilled = False

    @property
    def held_tokens(self) -> int:
        """Every prompt once it ran, and all given tokens but the last; nothing once all is done."""
        if not self.prefilled or not self.has_work:
            return 0
        return sum(map(len, self.prompts)) + sum(self.given.values()) - len(self.given)

    @property
    def most_held_tokens(self) -> int:
        return sum(map(len, self.prompts)) + sum(self.given.values()) - len(self.given)

    @property
    def counters(self) -> EngineCounters:
        prompts = sum(map(len, self.prompts))
        return EngineCounters(prompt_tokens=prompts, prefilled_tokens=prompts)

    def ledger(self) -> Ledger:
        held = self.held_tokens
        return Ledger(10**9, self.allocated(), held * 100, held)

    def add_request(self, prompt_ids: Sequence[int], params: SamplingParams) -> int:
        self.prompts.append(tuple(prompt_ids))
        self.limit = params.max_tokens
        self.given[len(self.prompts)] = 0
        return len(self.prompts)

    @property
    def has_work(self) -> bool:
        return any(count < self.limit for count in self.given.values())

    def step(self, on_part: object = None) -> SimpleNamespace:
        stage, batch = self.stage, len(self.prompts)
        stage.steps += 1
        first = not self.prefilled
        self.prefilled = True
        if first:
            stage.runs.append((self.config.schedule.batch, tuple(self.prompts)))
            stage.threads.append((self.config.run.threads, torch.get_num_threads()))
            if stage.flood_in_run == len(stage.runs):
                raise BudgetExceeded(Flood(self.ledger(), 900, 500, 3, 4, 3))
            if stage.break_in_run == len(stage.runs):
                raise NonFiniteLogits("scores are not finite; out of layer 3")
        stage.clock.pass_ms(40.0 * batch if first else stage.step_ms(batch, stage.source))
        tokens = dict.fromkeys(self.given, (65,))
        for request in self.given:
            self.given[request] += 1
        if stage.drop_token_in_run == len(stage.runs) and first:
            tokens.popitem()
        return SimpleNamespace(phase="prefill" if first else "decode", tokens=tokens, drafts={})

    def allocated(self) -> dict[str, int]:
        return price(self.config, self.model, packed_head=False).parts


class FakeShelf:
    """Names of models in place of models: nothing here runs one."""

    def __init__(self, tokenizer: Any, config: ModelConfig) -> None:
        self.tokenizer, self.config = tokenizer, config
        self.digest, self.name = "d" * 64, "tiny\x1b[31m"

    def llama(
        self, precision: str, recipe: Any = None, crossover: int = 0, watch: Any = None
    ) -> Any:
        return SimpleNamespace(
            precision=precision, kernel_path={}, low_bit_forms=(), config=self.config
        )

    def drafting(self, config: EngineConfig, target: Any, watch: Any = None) -> Any:
        return None

    drafters = NO_OTHERS

    def judge(self, precision: str, recipe: Any) -> Any:
        return self.llama("float32")


def spec(**changes: Any) -> TrialSpec:
    fields: dict[str, Any] = {
        "stage": "pendulum",
        "kind": "paired",
        "build": CANDIDATE,
        "reference": REFERENCE,
        "seed": 11,
        "bounds": (GOAL,),
        "quality": False,
    }
    return TrialSpec(**{**fields, **changes})
