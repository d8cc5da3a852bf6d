"""The engine: add_request, then step = schedule, run, postprocess, while there is work.

It never reads a clock, never prints, knows nothing of text. A step is one pass through the model,
in one phase; whoever wants to time a phase times its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType

from engine.config import EngineConfig
from engine.model.llama import Llama
from engine.run import activation_peak
from engine.run.runner import Runner, make_cache
from engine.run.sampler import Sampler
from engine.schedule.scheduler import Phase, Plan, Scheduler
from engine.schedule.sequence import Finish, SamplingParams, Sequence

__all__ = ["Engine", "SamplingParams", "StepOutput"]


@dataclass(frozen=True)
class StepOutput:
    """What one pass did.

    `sequence_ids` ran, with `rows` tokens in all. `tokens` holds what each emitted: one token in
    decode; in prefill only those whose prompt is now complete (`first_tokens`). `finished` maps
    the requests that ended in this step to why.
    """

    phase: Phase
    sequence_ids: tuple[int, ...]
    rows: int
    tokens: Mapping[int, int]
    first_tokens: tuple[int, ...]
    finished: Mapping[int, Finish]

    @property
    def finished_ids(self) -> tuple[int, ...]:
        return tuple(self.finished)


class Engine:
    """Serves requests with one model under one configuration.

    The cache reserves `config.schedule.batch` slots of `capacity` tokens at once: the workload's
    prompt + output unless said otherwise. The caller sets torch's thread count
    (`config.run.threads`), which belongs to the process and not to an engine.

    Raises:
        ValueError: the model was made in another precision than the configuration asks for, or
            the slots are larger than the model's context.
    """

    def __init__(
        self,
        model: Llama,
        config: EngineConfig,
        *,
        eos_ids: Iterable[int] = (),
        capacity: int | None = None,
    ) -> None:
        if model.precision != config.run.precision:
            raise ValueError(
                f"the model is in {model.precision} and the configuration asks for "
                f"{config.run.precision}; load it again in that precision"
            )
        self.model = model
        self.config = config
        self.capacity = capacity or config.workload.prompt + config.workload.output
        if self.capacity > model.config.context:
            raise ValueError(
                f"slots of {self.capacity} tokens pass the model's context of "
                f"{model.config.context}; at most that many"
            )
        self._eos_ids = frozenset(eos_ids)
        self._ids = count()
        self._activation_bytes: int | None = None
        self._cache = make_cache(model, config.schedule.batch, self.capacity)
        self._runner = Runner(model, self._cache)
        self._scheduler = Scheduler(config.schedule, self._cache, model.config.context)
        self._sampler = Sampler()
        self._kernel_path = model.kernel_path

    def add_request(self, prompt_ids: Iterable[int], params: SamplingParams) -> int:
        """Queue a request and give its id.

        Raises:
            ValueError: it could never run (too long, empty, or a token the model has not).
        """
        prompt = tuple(prompt_ids)
        vocabulary = self.model.config.vocabulary
        for token in prompt:
            if not 0 <= token < vocabulary:
                raise ValueError(f"token {token} is not in the vocabulary: 0 to {vocabulary - 1}")
        sequence = Sequence(next(self._ids), prompt, params)
        self._scheduler.add(sequence)
        self._sampler.open(sequence.id, params)
        return sequence.id

    def step(self) -> StepOutput:
        """One pass: schedule, run, postprocess.

        Raises:
            ValueError: there is no work.
            NonFiniteLogits: the model's scores are not numbers; the step's requests are dropped.
        """
        plan = self._scheduler.schedule()
        try:
            scores = self._runner.run(plan)
        except ArithmeticError:
            for piece in plan.pieces:
                self.abort(piece.sequence.id)
            raise
        drawn = self._sampler.sample(scores.sequence_ids, scores.logits, scores.greedy)
        return self._postprocess(plan, dict(zip(scores.sequence_ids, drawn, strict=True)))

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def abort(self, request: int) -> None:
        """Drop a request, waiting or running.

        Raises:
            ValueError: no such request, or it has finished.
        """
        self._scheduler.remove(request)
        self._sampler.close(request)

    def reset(self) -> None:
        """Drop every request. Ids go on counting: none is ever given twice."""
        for request in self._scheduler.ids:
            self.abort(request)
        self._cache.check_integrity()

    def allocated(self) -> dict[str, int]:
        """Bytes held, by part: weights, kv, activations (peak of a step), scratch.

        The first call runs the configuration's largest passes once to see their temporary
        tensors: call it outside timed runs.
        """
        if self._activation_bytes is None:
            self._activation_bytes = activation_peak.measure(self.model, self.config, self.capacity)
        return {
            "weights": self.model.weight_bytes,
            "kv": self._cache.nbytes,
            "activations": self._activation_bytes,
            "scratch": self.model.frequencies.nbytes,
        }

    @property
    def kernel_path(self) -> dict[str, str]:
        """The kernels that run, by operation: linear, attention, norm, rope, head."""
        return dict(self._kernel_path)

    def _postprocess(self, plan: Plan, drawn: dict[int, int]) -> StepOutput:
        tokens: dict[int, int] = {}
        finished: dict[int, Finish] = {}
        for piece in plan.pieces:
            sequence = piece.sequence
            sequence.computed += piece.count
            if sequence.in_prefill:
                continue  # the scores of an unfinished prompt's last row foretell a known token
            token = drawn[sequence.id]
            sequence.output_ids.append(token)
            tokens[sequence.id] = token
            sequence.finish = self._finish(sequence, token)
            if sequence.finish is not None:
                finished[sequence.id] = sequence.finish
                self.abort(sequence.id)
        return StepOutput(
            phase=plan.phase,
            sequence_ids=tuple(piece.sequence.id for piece in plan.pieces),
            rows=sum(piece.count for piece in plan.pieces),
            tokens=MappingProxyType(tokens),
            first_tokens=tuple(tokens) if plan.phase == "prefill" else (),
            finished=MappingProxyType(finished),
        )

    def _finish(self, sequence: Sequence, token: int) -> Finish | None:
        if token in self._eos_ids and not sequence.params.ignore_eos:
            return "stop"
        return "length" if len(sequence.output_ids) == sequence.params.max_tokens else None
